"""What fails because the store cannot be reached, told as such."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from redis.exceptions import RedisError

from chatsrv.errors import Unavailable

log = logging.getLogger("chatsrv.store")


def unreachable() -> Unavailable:
    return Unavailable("the store cannot be reached at the moment", headers={"Retry-After": "2"})


@contextmanager
def reachable() -> Iterator[None]:
    """
    Raises:
        Unavailable: a command in the block failed for want of the store.
    """
    try:
        yield
    except (RedisError, OSError) as error:
        log.error("the store failed: %s", error)
        raise unreachable() from error
