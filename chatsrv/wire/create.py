"""What a client may ask: the fields of ``POST /v1/responses`` and of ``response.create``."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from chatsrv.errors import InvalidField, NotFound, UnsupportedField
from chatsrv.ids import Kind, has_form
from chatsrv.wire.fields import Ignored, NoToolChoice, NoTools, Unsupported, check_supported, only
from chatsrv.wire.items import InputMessage
from chatsrv.wire.response import ConversationRef, Tier, Truncation

MAX_INPUT_ITEMS = 2000

Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
]
PositiveInt = Annotated[int, Meta(ge=1, le=2**31 - 1)]
StreamId = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.-]{1,256}\Z")]
Input = str | Annotated[list[InputMessage], Meta(max_length=MAX_INPUT_ITEMS)]

TIERS: dict[str | None, Tier] = {
    None: "default",
    "auto": "default",
    "default": "default",
    "flex": "flex",
    "fast": "priority",
    "priority": "priority",
}

PlainText = Annotated[
    Any,
    Meta(
        extra_json_schema={
            "type": ["object", "null"],
            "properties": {"format": {"enum": [None, {"type": "text"}]}, "verbosity": {}},
            "additionalProperties": False,
        }
    ),
]


class Sampling(Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How to draw tokens, beyond the standard's own fields: as vLLM names them. The engine checks the ranges."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None


class CreateResponse(Sampling, kw_only=True, forbid_unknown_fields=True):
    """What ``POST /v1/responses`` is asked. Fields of any type are looked at by hand."""

    model: str | None = None
    input: Input | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | ConversationRef | None = None
    parent_id: str | None = None
    max_output_tokens: PositiveInt | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    service_tier: Annotated[str | None, only(*TIERS)] = None
    truncation: Truncation | None = None
    generate: bool | None = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    metadata: Metadata | None = None
    include: list[str] | None = None

    tools: NoTools | None = None
    tool_choice: NoToolChoice = None
    text: PlainText = None
    access_programs: Unsupported = None
    background_options: Unsupported = None
    context_management: Unsupported = None
    image: Unsupported = None
    moderation: Unsupported = None
    prompt: Unsupported = None

    max_tool_calls: Ignored = None
    parallel_tool_calls: Ignored = None
    prompt_cache_key: Ignored = None
    prompt_cache_options: Ignored = None
    prompt_cache_retention: Ignored = None
    reasoning: Ignored = None
    safety_identifier: Ignored = None
    stream_options: Ignored = None
    user: Ignored = None

    @property
    def conversation_id(self) -> str | None:
        return self.conversation.id if isinstance(self.conversation, ConversationRef) else self.conversation

    @property
    def stored(self) -> bool:
        return self.store is not False

    @property
    def messages(self) -> list[InputMessage]:
        if isinstance(self.input, str):
            return [InputMessage(role="user", content=self.input)]
        return self.input or []

    def without_content(self) -> CreateResponse:
        """What is kept to go on with a response elsewhere; its content lies in its items."""
        fields = {name: getattr(self, name) for name in CreateResponse.__struct_fields__}
        return CreateResponse(**fields | {"input": None, "instructions": None, "metadata": None})

    def includes(self, name: str) -> bool:
        return name in (self.include or ())

    def check(self) -> None:
        """Refuse what the types alone cannot."""
        check_supported(self)
        if not _is_plain_text(self.text):
            raise UnsupportedField("text.format", 'text.format: only {"type": "text"} is supported')
        self._check_ids()
        if self.service_tier not in TIERS:
            names = ", ".join(name for name in TIERS if name)
            raise InvalidField(
                "service_tier", f"service_tier: must be one of {names}, not {str(self.service_tier)[:40]!r}"
            )
        if self.background and not self.stored:
            raise InvalidField("background", "background: needs a stored response; store is false")
        if self.conversation_id and not self.stored:
            raise InvalidField("store", "store: a response of a conversation is stored; store cannot be false")

    def _check_ids(self) -> None:
        _check_id("previous_response_id", self.previous_response_id, "resp", "previous_response_not_found")
        _check_id("conversation", self.conversation_id, "conv", "conversation_not_found")
        if self.parent_id is None:
            return
        if self.conversation_id is None:
            raise InvalidField("parent_id", "parent_id: names an item of a conversation; conversation is missing")
        if self.previous_response_id is not None:
            raise InvalidField("parent_id", "parent_id: cannot be combined with previous_response_id")
        if self.parent_id != "root":
            _check_id("parent_id", self.parent_id, "msg", "item_not_found")


def _check_id(param: str, value: str | None, kind: Kind, code: str) -> None:
    if value is not None and not has_form(value, kind):
        raise NotFound(f"{param}: no such {kind}_… identifier", param=param, code=code)


def _is_plain_text(text: object) -> bool:
    if text is None:
        return True
    if not isinstance(text, dict) or not set(text) <= {"format", "verbosity"}:
        return False
    return text.get("format") in (None, {"type": "text"})


class ResponseCreate(CreateResponse, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="response.create"):
    """``response.create`` of the WebSocket protocol."""

    stream_id: StreamId | None = None

    def check(self) -> None:
        CreateResponse.check(self)
        if self.background:
            raise UnsupportedField("background", "background: not over a WebSocket; use POST /v1/responses")
        if self.stream is False:
            raise UnsupportedField("stream", "stream: is implied over a WebSocket and cannot be false")


class ResponseCancel(Struct, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="response.cancel"):
    response_id: str


class ResponseResume(Struct, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="response.resume"):
    response_id: str
    starting_after: Annotated[int, Meta(ge=-1, le=2**53)] = -1
    stream_id: StreamId | None = None


class ResponseSteer(Struct, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="response.steer"):
    previous_response_id: str
    input: Input


ClientEvent = ResponseCreate | ResponseCancel | ResponseResume | ResponseSteer
