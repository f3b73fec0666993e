"""Responses that were left running by a process that is gone: their last words are written for them."""

from __future__ import annotations

import msgspec

from chatsrv.ids import tag_of
from chatsrv.records import ItemRecord, ResponseRecord
from chatsrv.store import Store
from chatsrv.wire import events
from chatsrv.wire.response import TERMINAL, ResponseError


class Settlement:
    """Decides whether a stored response that is not marked as ended still runs somewhere."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def settled(self, owner: str, record: ResponseRecord) -> ResponseRecord:
        """The record itself, or, if the process that ran it is gone, as failed with what had been told."""
        if record.response.status in TERMINAL or await self._store.is_process_alive(record.process_id):
            return record
        return await self._settle(record)

    async def _settle(self, record: ResponseRecord) -> ResponseRecord:
        response = record.response
        entries = await self._store.events(response.id, -1)
        response.status = "failed"
        response.error = ResponseError(code="server_error", message="the server was stopped while it answered")
        items = await self._interrupted_answer(record, "".join(map(_delta, entries)))
        last = events.entry(events.terminal(response), entries[-1].sequence_number + 1 if entries else 0)
        self._store.finish_turn(tag_of(response.id), items, record, last)
        return record

    async def _interrupted_answer(self, record: ResponseRecord, text: str) -> list[ItemRecord]:
        tree = await self._store.tree(tag_of(record.response.id))
        if record.output_item_id is None or record.output_item_id not in tree:
            return []
        answer = tree[record.output_item_id]
        answer.text, answer.status = text, "incomplete"
        record.response.output = [answer.as_output([])]
        return [answer]


def _delta(entry: events.Entry) -> str:
    """The text that an event adds to the answer."""
    if entry.type != "response.output_text.delta":
        return ""
    return msgspec.json.decode(entry.data, type=events.TextDelta).delta
