"""The response object: what is asked, how far it is, and what came of it."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from chatsrv.wire.items import Extras, OutputMessage

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
Tier = Literal["priority", "default", "flex"]
Truncation = Literal["auto", "disabled"]

TERMINAL: frozenset[Status] = frozenset({"completed", "incomplete", "failed", "cancelled"})


class InputTokensDetails(Struct, kw_only=True):
    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(Struct, kw_only=True):
    reasoning_tokens: int = 0


class ResponseUsage(Struct, kw_only=True):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens_details: OutputTokensDetails = field(default_factory=OutputTokensDetails)


class IncompleteDetails(Struct, kw_only=True):
    reason: Literal["max_output_tokens", "steered"]


class ResponseError(Struct, kw_only=True):
    code: str
    message: str


class ConversationRef(Struct, kw_only=True):
    id: str


class TextFormat(Struct, kw_only=True, tag="text"):
    pass


class TextConfig(Struct, kw_only=True):
    format: TextFormat = field(default_factory=TextFormat)


class Response(Struct, kw_only=True, tag_field="object", tag="response"):
    """As the ``openai`` client's ``Response``; ``chatsrv`` is ours."""

    id: str
    created_at: float
    model: str
    status: Status
    output: list[OutputMessage] = []
    usage: ResponseUsage | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    completed_at: float | None = None
    background: bool = False
    conversation: ConversationRef | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: dict[str, str] = {}
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    service_tier: Tier = "default"
    store: bool = True
    temperature: float = 1.0
    text: TextConfig = field(default_factory=TextConfig)
    tool_choice: str = "auto"
    tools: list[Any] = []
    top_logprobs: int | None = None
    top_p: float = 1.0
    truncation: Truncation = "disabled"
    chatsrv: Extras | UnsetType = UNSET


class DeletedResponse(Struct, kw_only=True, tag_field="object", tag="response"):
    id: str
    deleted: bool = True
