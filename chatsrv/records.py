"""What the store keeps: sessions, their items and their responses. No I/O."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct, field

from chatsrv.ids import new_id
from chatsrv.wire.create import CreateResponse
from chatsrv.wire.items import InputMessage, InputText, Item, ItemStatus, Logprob, OutputMessage, OutputText, Role
from chatsrv.wire.response import Response


class ItemRecord(Struct, kw_only=True):
    """A node of a session's tree.

    Attributes:
        created_ns: Unix time; strictly rising within a session, whose items it orders.
        token_ids: of an answer: exactly the ids the model drew, if they decode to exactly ``text``.
        prefix_key: of an answer: the cache key of its turn's last full block; a look-up tells which engine holds it.
    """

    id: str
    role: Role
    text: str
    status: ItemStatus = "completed"
    parent_id: str | None = None
    response_id: str | None = None
    created_ns: int = 0
    token_ids: list[int] | None = None
    prefix_key: str | None = None

    def on_wire(self) -> Item:
        part = OutputText(text=self.text) if self.role == "assistant" else InputText(text=self.text)
        return Item(
            id=self.id,
            role=self.role,
            status=self.status,
            content=[part],
            created_at=self.created_ns // 10**9,
            parent_id=self.parent_id,
            response_id=self.response_id,
        )

    def as_output(self, logprobs: list[Logprob]) -> OutputMessage:
        """An answer, as its response tells it."""
        return OutputMessage(
            id=self.id,
            status=self.status,
            content=[OutputText(text=self.text, logprobs=logprobs)],
            created_at=self.created_ns // 10**9,
            parent_id=self.parent_id,
            response_id=self.response_id,
        )


class ResponseRecord(Struct, kw_only=True):
    """A response as it is stored.

    Attributes:
        parent_item_id: the item its input follows.
        output_item_id: its answer; None if it generates nothing.
        key_id: of the API key that asked for it, on whose account it runs.
        process_id: the server process that runs it.
        num_takeovers: how often it was continued because the process that ran it had died.
        request: how it was asked, with the seed that draws its tokens and without the input.
        model_fingerprint, prompt_token_ids: exactly which model was given exactly what.
    """

    response: Response
    request: CreateResponse = field(default_factory=CreateResponse)
    parent_item_id: str | None = None
    input_item_ids: list[str] = field(default_factory=list)
    output_item_id: str | None = None
    key_id: str = ""
    process_id: str = ""
    num_takeovers: int = 0
    model_fingerprint: str = ""
    prompt_token_ids: list[int] = field(default_factory=list)

    @property
    def last_item_ids(self) -> list[str]:
        """Where a continuation goes on, the last first: the answer, or what is before it if that was deleted."""
        return [*filter(None, [self.output_item_id]), *self.input_item_ids[::-1], *filter(None, [self.parent_item_id])]


class PrefixPlace(Struct, kw_only=True):
    """Where the beginning of a turn is cached.

    Attributes:
        process_id: of the server whose engine holds it.
        tier: ``cpu`` if a part lies in the engine's CPU pool.
        until: Unix time up to which it is believed to stay there.
    """

    key: str
    process_id: str
    tier: Literal["device", "cpu"]
    num_tokens: int
    until: float


class Heartbeat(Struct, kw_only=True):
    """What a living server tells the others of its engine, in requests and blocks, and which of their work it does."""

    fingerprint: str = ""
    hosted: list[str] = field(default_factory=list)
    num_running: int = 0
    num_waiting: int = 0
    num_free_blocks: int = 0


class Session(Struct, kw_only=True):
    """A tree of items and their responses: a conversation, or a chain of responses without one.

    Attributes:
        conversation_id: empty where the client never asked for a conversation.
        head_id: the item that the newest turn ends with.
    """

    owner: str
    conversation_id: str = ""
    created_at: int = 0
    last_used_at: float = 0.0
    head_id: str = ""
    metadata: dict[str, str] = field(default_factory=dict)


def next_ns(newest_ns: int) -> int:
    """When an item is created now, after the newest of its session: an order that no clock set back can turn round."""
    return max(time.time_ns(), newest_ns + 1)


def chain(
    tag: str, messages: Sequence[InputMessage], parent_id: str | None, newest_ns: int, response_id: str | None = None
) -> list[ItemRecord]:
    """Messages as new items of a session, each the parent of the next.

    Args:
        newest_ns: when the newest item that the session has was created.
    """
    items: list[ItemRecord] = []
    for message in messages:
        newest_ns = next_ns(newest_ns)
        item = ItemRecord(
            id=new_id("msg", tag),
            role=message.role,
            text=message.text,
            parent_id=items[-1].id if items else parent_id,
            response_id=response_id,
            created_ns=newest_ns,
        )
        items.append(item)
    return items
