"""From the fields of a request to the engine's sampling parameters and priority."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from chatsrv.errors import InvalidField
from chatsrv.wire.create import CreateResponse, Sampling
from engine import InvalidRequest, ModelInfo, SamplingParams

# Fields whose name and meaning are alike on the wire and in the engine.
_SHARED = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "min_tokens",
    "ignore_eos",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)

RESPONSE_NAMES = {"max_tokens": "max_output_tokens", "logprobs": "top_logprobs"}
"""Engine fields that ``POST /v1/responses`` calls otherwise."""


def sampling_params(request: Sampling, model: ModelInfo, **others: Any) -> SamplingParams:
    """The engine's parameters.

    Args:
        others: engine fields given directly; None means not given.

    Raises:
        InvalidField, engine.InvalidRequest: naming the field and its limit.
    """
    given = {name: getattr(request, name) for name in _SHARED}
    given["stop"] = (request.stop,) if isinstance(request.stop, str) else request.stop and tuple(request.stop)
    given["stop_token_ids"] = request.stop_token_ids and tuple(request.stop_token_ids)
    given["logit_bias"] = request.logit_bias and _token_ids(request.logit_bias)
    given |= others
    params = SamplingParams(**{name: value for name, value in given.items() if value is not None})
    params.check_token_ids(model)
    return params


@contextmanager
def naming(names: Mapping[str, str]) -> Iterator[None]:
    """Tell what the engine refuses in the client's words.

    Args:
        names: the wire's name of an engine field, where they differ.

    Raises:
        InvalidField: in place of ``InvalidRequest``.
    """
    try:
        yield
    except InvalidRequest as error:
        message = re.sub(r"\w+", lambda word: names.get(word[0], word[0]), str(error))
        raise InvalidField(names.get(error.field, error.field), message, code=error.code) from None


def response_params(request: CreateResponse, model: ModelInfo) -> SamplingParams:
    """Parameters of ``POST /v1/responses``; warming the cache draws a single token that nobody sees."""
    check_max_tokens("max_output_tokens", request.max_output_tokens, model)
    wants_logprobs = request.includes("message.output_text.logprobs")
    logprobs = request.top_logprobs if request.top_logprobs is not None else 0 if wants_logprobs else None
    max_tokens = 1 if request.generate is False else request.max_output_tokens
    with naming(RESPONSE_NAMES):
        return sampling_params(request, model, max_tokens=max_tokens, logprobs=logprobs)


def check_max_tokens(name: str, value: int | None, model: ModelInfo) -> None:
    """Refuse to promise more tokens than the model can ever have."""
    if value is not None and value > model.max_model_len:
        limit = f"at most {model.max_model_len}, the model's length"
        raise InvalidField(name, f"{name}: must be {limit}, not {value}")


def _token_ids(logit_bias: dict[str, float]) -> dict[int, float]:
    try:
        return {int(token_id): bias for token_id, bias in logit_bias.items()}
    except ValueError:
        raise InvalidField("logit_bias", "logit_bias: its keys must be token ids") from None
