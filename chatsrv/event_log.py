"""The events of one response, and readers that follow them: replay first; live is replay that caught up.

Readers hold a place in the log and no queue, so a slow one costs nothing but its place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from chatsrv.wire.events import Entry, Event, entry

MAX_BATCH = 256


class EventLog:
    """Entries with sequence numbers from 0 on, without gaps; the terminal one is the last."""

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._news = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        return bool(self._entries) and self._entries[-1].is_terminal

    def prepare(self, event: Event) -> Entry:
        """The event as the next entry, not yet in the log."""
        return entry(event, len(self._entries))

    def publish(self, prepared: Entry) -> None:
        """Append the entry and wake the readers."""
        assert not self.is_closed, "a response has exactly one terminal event, its last"
        assert prepared.sequence_number == len(self._entries)
        self._entries.append(prepared)
        self._news.set()
        self._news = asyncio.Event()

    def append(self, event: Event) -> Entry:
        prepared = self.prepare(event)
        self.publish(prepared)
        return prepared

    async def follow(self, starting_after: int = -1) -> AsyncGenerator[list[Entry], None]:
        """All entries after that number, as they come: in each list what was there, up to ``MAX_BATCH`` of it."""
        position = starting_after + 1
        while True:
            if position < len(self._entries):
                entries = self._entries[position : position + MAX_BATCH]
                position += len(entries)
                yield entries
            elif self.is_closed:
                return
            else:
                await self._news.wait()
