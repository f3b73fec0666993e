"""Going down in order: no new work, then what runs may end, then what still runs is handed over and all must leave."""

from __future__ import annotations

import asyncio

from chatsrv.errors import Restarting

SERVICE_RESTART = 1012
"""Close code of sockets that should be opened again, to another server or to the next one."""


class Drain:
    """Whether the server is going. Sockets leave as they become idle; new work is for another server.

    When it is over nobody may stay any longer, not even to hear what runs in another server.
    """

    def __init__(self) -> None:
        self._begun = asyncio.Event()
        self._over = asyncio.Event()

    @property
    def is_begun(self) -> bool:
        return self._begun.is_set()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def begin(self) -> None:
        self._begun.set()

    def end(self) -> None:
        self._over.set()

    async def begun(self) -> None:
        await self._begun.wait()

    async def over(self) -> None:
        await self._over.wait()

    def check(self) -> None:
        """
        Raises:
            Restarting: no new work is taken.
        """
        if self.is_begun:
            raise Restarting
