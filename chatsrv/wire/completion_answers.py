"""What ``/v1/chat/completions`` and ``/v1/completions`` answer, whole or in chunks."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from chatsrv.wire.items import Logprob
from chatsrv.wire.response import Tier

DONE = "[DONE]"
"""The data of the last event of a stream."""


class PromptTokensDetails(Struct, kw_only=True):
    cached_tokens: int


class CompletionUsage(Struct, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class _Choice(Struct, kw_only=True):
    """``stop_reason`` is the stop string or token that ended it, as vLLM tells it."""

    index: int
    finish_reason: Literal["stop", "length"] | None
    stop_reason: str | int | None


class ChatLogprobs(Struct, kw_only=True):
    content: list[Logprob]
    refusal: None = None


class ChatMessage(Struct, kw_only=True):
    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class ChatChoice(_Choice, kw_only=True):
    message: ChatMessage
    logprobs: ChatLogprobs | None


class ChatDelta(Struct, kw_only=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatChunkChoice(_Choice, kw_only=True):
    delta: ChatDelta
    logprobs: ChatLogprobs | None


class TextLogprobs(Struct, kw_only=True):
    """Parallel lists, with an entry for each token; ``text_offset`` is in characters of the choice's text."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextChoice(_Choice, kw_only=True):
    text: str
    logprobs: TextLogprobs | None


class _Answer(Struct, kw_only=True, tag_field="object"):
    id: str
    created: int
    model: str
    service_tier: Tier


class _Whole(_Answer, kw_only=True):
    usage: CompletionUsage
    system_fingerprint: None = None


class _Chunk(_Answer, kw_only=True):
    """``usage`` only where it was asked for: null, but in the last chunk, which has no choices."""

    usage: CompletionUsage | UnsetType | None = UNSET


class ChatCompletion(_Whole, kw_only=True, tag="chat.completion"):
    choices: list[ChatChoice]


class ChatChunk(_Chunk, kw_only=True, tag="chat.completion.chunk"):
    choices: list[ChatChunkChoice]


class TextCompletion(_Whole, kw_only=True, tag="text_completion"):
    choices: list[TextChoice]


class TextChunk(_Chunk, kw_only=True, tag="text_completion"):
    choices: list[TextChoice]
