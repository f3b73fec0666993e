"""What a client may ask of ``/v1/chat/completions`` and ``/v1/completions``."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from chatsrv.errors import InvalidField, InvalidJson, UnsupportedField
from chatsrv.wire import strict
from chatsrv.wire.create import MAX_INPUT_ITEMS, TIERS, PositiveInt, Sampling
from chatsrv.wire.fields import Ignored, NoToolChoice, NoTools, Unsupported, check_supported, only
from chatsrv.wire.items import MAX_PARTS
from chatsrv.wire.response import Tier

MAX_PROMPTS = 64

_TOKENS = {"type": "array", "minItems": 1, "items": {"type": "integer"}}
_PROMPTS = {"type": "array", "minItems": 1, "maxItems": MAX_PROMPTS, "items": {"anyOf": [{"type": "string"}, _TOKENS]}}
Prompt = Annotated[str | list[Any], Meta(extra_json_schema={"anyOf": [{"type": "string"}, _TOKENS, _PROMPTS]})]


class StreamOptions(Struct, kw_only=True, forbid_unknown_fields=True):
    include_usage: bool | None = None
    include_obfuscation: Ignored = None


class TextPart(Struct, kw_only=True, forbid_unknown_fields=True):
    type: Literal["text", "refusal"]
    text: str = ""
    refusal: str = ""


class FunctionCall(Struct, kw_only=True):
    name: str
    arguments: str | None = None


class ToolCall(Struct, kw_only=True):
    function: FunctionCall
    id: str | None = None
    type: Literal["function"] = "function"


class ChatRequestMessage(Struct, kw_only=True, forbid_unknown_fields=True):
    """A message of the history. Calls and results of tools may be in it, though this server makes no calls itself."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Annotated[list[TextPart], Meta(max_length=MAX_PARTS)] | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    annotations: Ignored = None
    audio: None = None
    function_call: None = None
    reasoning_content: Ignored = None

    def text(self, index: int) -> str:
        """The message as plain text; calls as the JSON that models write them in."""
        if isinstance(self.content, list):
            said = "".join(part.text or part.refusal for part in self.content)
        else:
            said = self.content or self.refusal or ""
        calls = [_call_text(call, f"messages[{index}].tool_calls[{i}]") for i, call in enumerate(self.tool_calls or [])]
        return "\n".join([*([said] if said else []), *calls])


class _Completion(Sampling, kw_only=True, forbid_unknown_fields=True):
    """What chat and legacy completions have in common, vLLM's extra fields included."""

    model: str | None = None
    n: int | None = None
    best_of: int | None = None
    max_tokens: PositiveInt | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    early_stopping: bool | Literal["never"] | None = None
    priority: int | None = None
    service_tier: Annotated[str | None, only(*TIERS)] = None
    user: Ignored = None

    @property
    def tier(self) -> Tier:
        """The class by ``service_tier``, or by vLLM's ``priority``, of which the lower is sooner."""
        if self.service_tier not in TIERS:
            raise InvalidField("service_tier", f"service_tier: {str(self.service_tier)[:40]!r} is not one we know")
        if self.service_tier is None and self.priority:
            return "priority" if self.priority < 0 else "flex"
        return TIERS[self.service_tier]

    @property
    def includes_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage is True


class ChatRequest(_Completion, kw_only=True, forbid_unknown_fields=True):
    messages: Annotated[list[ChatRequestMessage], Meta(min_length=1, max_length=MAX_INPUT_ITEMS)]
    max_completion_tokens: PositiveInt | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None

    audio: Unsupported = None
    functions: Unsupported = None
    function_call: Unsupported = None
    modalities: Annotated[Any, only(None, ["text"])] = None
    moderation: Unsupported = None
    prediction: Unsupported = None
    response_format: Annotated[Any, only(None, {"type": "text"})] = None
    store: Annotated[bool | None, only(None, False)] = None
    tools: NoTools | None = None
    tool_choice: NoToolChoice = None
    web_search_options: Unsupported = None

    metadata: Ignored = None
    parallel_tool_calls: Ignored = None
    prompt_cache_key: Ignored = None
    prompt_cache_options: Ignored = None
    prompt_cache_retention: Ignored = None
    reasoning_effort: Ignored = None
    safety_identifier: Ignored = None
    verbosity: Ignored = None

    def check(self) -> None:
        """Refuse what the types alone cannot."""
        check_supported(self)
        if self.response_format not in (None, {"type": "text"}):
            raise UnsupportedField("response_format", 'response_format: only {"type": "text"} is supported')
        if self.modalities not in (None, ["text"]):
            raise UnsupportedField("modalities", 'modalities: only ["text"] is supported')
        if self.store:
            raise UnsupportedField("store", "store: chat completions are not stored; use /v1/responses")
        if self.top_logprobs is not None and not self.logprobs:
            raise InvalidField("top_logprobs", "top_logprobs: needs logprobs to be true")

    @property
    def num_logprobs(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None


class CompletionRequest(_Completion, kw_only=True, forbid_unknown_fields=True):
    prompt: Prompt
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    echo: Annotated[bool | None, only(None, False)] = None
    suffix: Annotated[str | None, only(None, "")] = None

    def check(self) -> None:
        """Refuse what the types alone cannot."""
        if self.echo:
            raise UnsupportedField("echo", "echo: not supported by this server")
        if self.suffix:
            raise UnsupportedField("suffix", "suffix: not supported by this server")

    def prompts(self) -> list[str | list[int]]:
        """One prompt or several, each as text or token ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if not self.prompt:
            raise InvalidField("prompt", "prompt: must not be an empty list")
        if all(_is_token(value) for value in self.prompt):
            return [self.prompt]
        if len(self.prompt) > MAX_PROMPTS:
            raise InvalidField("prompt", f"prompt: may hold at most {MAX_PROMPTS} prompts, not {len(self.prompt)}")
        for index, value in enumerate(self.prompt):
            if not isinstance(value, str) and not (isinstance(value, list) and value and all(map(_is_token, value))):
                raise InvalidField(f"prompt[{index}]", f"prompt[{index}]: must be text or a list of token ids")
        return self.prompt


def _is_token(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _call_text(call: ToolCall, path: str) -> str:
    """A tool call of the history; arguments come as JSON in a string, and "" and "null" mean none."""
    param = f"{path}.function.arguments"
    try:
        arguments = strict.parse(call.function.arguments or "null")
    except InvalidJson as error:
        raise InvalidField(param, f"{param}: {error.message}") from None
    if arguments is not None and not isinstance(arguments, dict):
        raise InvalidField(param, f"{param}: must be a JSON object")
    return f"<tool_call>\n{json.dumps({'name': call.function.name, 'arguments': arguments or {}})}\n</tool_call>"
