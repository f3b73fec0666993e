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


class Reachable:
    """Around commands of one store. The log tells of an outage once, however many of them fail in it."""

    def __init__(self) -> None:
        self._is_failing = False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """
        Raises:
            Unavailable: a command in the block failed for want of the store.
        """
        try:
            yield
        except (RedisError, OSError) as error:
            if not self._is_failing:
                log.error("the store failed: %s", error)
            self._is_failing = True
            raise unreachable() from error
        self._is_failing = False
