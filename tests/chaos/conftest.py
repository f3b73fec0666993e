"""Servers within the process of the test, as the tests of chatsrv have them."""

from tests.chatsrv.conftest import redis_server, serve  # noqa: F401
