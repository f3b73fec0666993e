"""One turn of a session: what is asked, what the model is given, and the answer as it grows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chatsrv.keyring import Caller
from chatsrv.observation import Observation
from chatsrv.records import ItemRecord, PrefixPlace, ResponseRecord, Session
from chatsrv.wire.create import CreateResponse
from chatsrv.wire.response import Response


@dataclass(slots=True, kw_only=True)
class Turn:
    """
    Attributes:
        path: the items before this turn, from the root on.
        items: what this turn adds: the input and, unless it only warms the cache, the answer.
        prefix: where what it computed is cached, at its end.
    """

    caller: Caller
    tag: str
    request: CreateResponse
    session: Session
    record: ResponseRecord
    path: list[ItemRecord]
    items: list[ItemRecord]
    prefix: Callable[[], PrefixPlace | None] = lambda: None

    @property
    def response(self) -> Response:
        return self.record.response

    @property
    def answer(self) -> ItemRecord | None:
        return self.items[-1] if self.record.output_item_id is not None else None

    def observe(self) -> Observation:
        """Begin to observe how it is computed."""
        asked = [item.text for item in self.items[: len(self.record.input_item_ids)]]
        return Observation(self.response.id, self.response.model, self.response.service_tier, asked)

    @property
    def is_stored(self) -> bool:
        return self.request.stored
