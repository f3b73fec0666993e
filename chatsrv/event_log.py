"""The events of one response, and readers that follow them: replay first; live is replay that caught up.

Readers hold a place in the log and no queue, so a slow one costs nothing but its place.

    entries     |<---- told: readers see them ---->|<-- held: not before they are stored -->|
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from chatsrv.errors import Restarting
from chatsrv.wire.events import Entry, Event, entry

MAX_BATCH = 256


class EventLog:
    """Entries with sequence numbers from 0 on, without gaps; the terminal one is the last.

    Args:
        entries: what another server has told already.
    """

    def __init__(self, entries: Sequence[Entry] = ()) -> None:
        self._entries = list(entries)
        self._num_told = len(self._entries)
        self._num_holds = 0
        self._is_abandoned = False
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def is_empty(self) -> bool:
        return not self._entries

    @property
    def is_closed(self) -> bool:
        return bool(self._entries) and self._entries[-1].is_terminal

    def prepare(self, event: Event, token_ids: tuple[int, ...] = ()) -> Entry:
        """The event as the next entry, not yet in the log."""
        return entry(event, len(self._entries), token_ids)

    def publish(self, prepared: Entry) -> None:
        """Append the entry, and tell it unless the log is held."""
        assert not self.is_closed, "a response has exactly one terminal event, its last"
        assert prepared.sequence_number == len(self._entries)
        self._entries.append(prepared)
        self._tell()

    def append(self, event: Event, token_ids: tuple[int, ...] = ()) -> Entry:
        prepared = self.prepare(event, token_ids)
        self.publish(prepared)
        return prepared

    def hold(self) -> None:
        """Tell nothing that comes from here on before as many calls of ``release``."""
        self._num_holds += 1

    def release(self) -> None:
        self._num_holds -= 1
        self._tell()

    def abandon(self) -> None:
        """Nothing more is told here: another server goes on with this log."""
        self._is_abandoned = True
        self._wake()

    def _tell(self) -> None:
        if self._num_holds == 0 and not self._is_abandoned:
            self._num_told = len(self._entries)
            self._wake()

    def _wake(self) -> None:
        for reader in self._waiting:
            if not reader.done():
                reader.set_result(None)
        self._waiting.clear()

    async def follow(self, starting_after: int = -1) -> AsyncGenerator[list[Entry], None]:
        """All entries after that number, as they come: in each list what was there, up to ``MAX_BATCH`` of it.

        Raises:
            Restarting: the rest is told elsewhere.
        """
        position = starting_after + 1
        loop = asyncio.get_running_loop()
        while True:
            if position < self._num_told:
                entries = self._entries[position : min(position + MAX_BATCH, self._num_told)]
                position += len(entries)
                yield entries
            elif self.is_closed and self._num_told == len(self._entries):
                return
            elif self._is_abandoned:
                raise Restarting
            else:
                reader = loop.create_future()
                self._waiting.append(reader)
                await reader
