"""What a turn costs the store, in commands: a fixed number, and a few for each batch of its events, however many."""

from __future__ import annotations

import time
from collections.abc import Callable

from redis import Redis

from chatsrv.store.journal import FLUSH_INTERVAL_S
from tests.chatsrv.conftest import ServerThread
from tests.chatsrv.sockets import Socket

PER_TURN = 32
"""Planning, leasing, saving, and the server's own heartbeats beside it."""

PER_BATCH = 3
"""MULTI and EXEC, and an XADD to the event log."""


def test_a_turn_costs_commands_by_its_time_and_not_by_its_tokens(serve: Callable[..., ServerThread]) -> None:
    with serve() as server, Redis(unix_socket_path=f"{server.settings.data_dir}/store/store.sock") as redis:
        for num_tokens in (4, 400):
            with Socket(server) as socket:
                server.engine.enqueue("x" * num_tokens)
                began, before = time.monotonic(), redis.info("stats")["total_commands_processed"]
                assert socket.ask("hello")["status"] == "completed"
                num_batches = 1 + (time.monotonic() - began) / FLUSH_INTERVAL_S
                num_commands = redis.info("stats")["total_commands_processed"] - before - 1
            assert 0 < num_commands <= PER_TURN + PER_BATCH * num_batches
