"""Messages as clients send them, and as items of responses and conversations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from chatsrv.wire.fields import Ignored

Role = Literal["user", "assistant", "system", "developer"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]

MAX_PARTS = 1000


class TopLogprob(Struct, kw_only=True):
    token: str
    logprob: float
    bytes: list[int]


class Logprob(Struct, kw_only=True):
    """A token of the answer, with its natural-log probability and the likeliest tokens in its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class InputPart(Struct, kw_only=True, forbid_unknown_fields=True):
    """Text of a message. What answers carry beside it may come back, and is not looked at."""

    type: Literal["input_text", "output_text", "text"]
    text: str
    annotations: Ignored = None
    logprobs: Ignored = None
    prompt_cache_breakpoint: Ignored = None


class InputMessage(Struct, kw_only=True, forbid_unknown_fields=True):
    """A message of ``input``. What follows ``type`` comes with items that are sent back, and is not looked at."""

    role: Role
    content: str | Annotated[list[InputPart], Meta(max_length=MAX_PARTS)] | None = None
    type: Literal["message"] | None = None
    id: Ignored = None
    status: Ignored = None
    phase: Ignored = None
    created_at: Ignored = None
    parent_id: Ignored = None
    response_id: Ignored = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class InputText(Struct, kw_only=True, tag="input_text"):
    text: str


class OutputText(Struct, kw_only=True, tag="output_text"):
    text: str
    annotations: list[Any] = []
    logprobs: list[Logprob] = []


class OutputMessage(Struct, kw_only=True, tag="message"):
    """The answer as an output item of a response, with its place in the conversation."""

    id: str
    status: ItemStatus
    content: list[OutputText]
    role: Literal["assistant"] = "assistant"
    created_at: int
    parent_id: str | None
    response_id: str | None


class Item(Struct, kw_only=True, tag="message"):
    """An item of a conversation or of a response's input.

    Attributes:
        parent_id: the item it follows; None at the root.
        response_id: the response that asked or answered it.
    """

    id: str
    role: Role
    status: ItemStatus
    content: list[InputText | OutputText]
    created_at: int
    parent_id: str | None = None
    response_id: str | None = None


class ItemList(Struct, kw_only=True, tag_field="object", tag="list"):
    data: list[Item]
    has_more: bool = False
    first_id: str | None = None
    last_id: str | None = None


class Extras(Struct, kw_only=True):
    """The ``chatsrv`` object of a response: what was opted into, and what must be told."""

    ttft_s: float | UnsetType | None = UNSET
    tokens_per_s: float | UnsetType | None = UNSET
    num_dropped_items: int | UnsetType = UNSET
    saved: bool | UnsetType = UNSET
