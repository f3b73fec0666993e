"""``/v1/chat/completions`` and ``/v1/completions``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.requests import Request
from starlette.types import ASGIApp

from chatsrv.auth import caller
from chatsrv.completions import ChatShape, Completion, LegacyShape, Shape
from chatsrv.http import json_response, read_body, unless_disconnected
from chatsrv.observation import Observation
from chatsrv.prompt import check_length
from chatsrv.sampling import check_max_tokens, naming, sampling_params
from chatsrv.seam import EngineSeam, OutputStream
from chatsrv.services import services
from chatsrv.sse import EventStream
from chatsrv.turns import check_model
from chatsrv.wire.completions import ChatRequest, CompletionRequest
from engine import ChatMessage, Priority, SamplingParams

_DEFAULT_LEGACY_MAX_TOKENS = 16  # as the OpenAI API has it


async def chat(request: Request) -> ASGIApp:
    body = await read_body(request, ChatRequest)
    body.check()
    engine = services(request).engine
    messages = [
        ChatMessage("system" if message.role == "developer" else message.role, message.text(index))
        for index, message in enumerate(body.messages)
    ]
    name = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    max_tokens = body.max_completion_tokens or body.max_tokens
    check_max_tokens(name, max_tokens, engine.model)
    with naming({"max_tokens": name, "logprobs": "top_logprobs"}):
        params = _params(body, engine, max_tokens, body.num_logprobs)
        asked = [message.content for message in messages]
        return await _answer(request, body, ChatShape(), [asked], [await engine.encode_chat(messages)], params)


async def legacy(request: Request) -> ASGIApp:
    body = await read_body(request, CompletionRequest)
    body.check()
    engine = services(request).engine
    check_max_tokens("max_tokens", body.max_tokens, engine.model)
    params = _params(body, engine, body.max_tokens or _DEFAULT_LEGACY_MAX_TOKENS, body.logprobs)
    asked = body.prompts()
    prompts = [await engine.encode(p) if isinstance(p, str) else p for p in asked]
    return await _answer(request, body, LegacyShape(), asked, prompts, params)


def _params(
    body: ChatRequest | CompletionRequest,
    engine: EngineSeam,
    max_tokens: int | None,
    logprobs: int | None,
) -> SamplingParams:
    return sampling_params(
        body,
        engine.model,
        max_tokens=max_tokens,
        logprobs=logprobs,
        n=body.n,
        best_of=body.best_of,
        use_beam_search=body.use_beam_search,
        length_penalty=body.length_penalty,
        early_stopping=body.early_stopping,
    )


async def _answer(
    request: Request,
    body: ChatRequest | CompletionRequest,
    shape: Shape,
    asked: Sequence[Sequence[str | int]],
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
) -> ASGIApp:
    drain = services(request).responses.drain
    drain.check()
    engine = services(request).engine
    check_model(body.model, engine.model.name)
    field = "messages" if isinstance(body, ChatRequest) else "prompt"
    for prompt in prompts:
        check_length(len(prompt), engine.model.max_model_len, field)
    completion_id = shape.new_id()
    observations = [Observation(completion_id, engine.model.name, body.tier, texts) for texts in asked]
    streams = await _submit(request, prompts, params, body.tier, observations)
    completion = Completion(shape, completion_id, engine, streams, params.n, body.tier, drain)
    if body.stream:
        return EventStream(completion.chunks(include_usage=body.includes_usage))
    return json_response(await unless_disconnected(request, completion.whole()))


async def _submit(
    request: Request,
    prompts: Sequence[Sequence[int]],
    params: SamplingParams,
    tier: Priority,
    observations: Sequence[Observation],
) -> list[OutputStream]:
    """All prompts are queued, or none."""
    account = services(request).accounts.of(caller(request))

    async def submit(prompt: Sequence[int], observation: Observation) -> OutputStream:
        with account.place() as place:
            salt = caller(request).salt
            stream = await services(request).engine.submit(prompt, params, priority=tier, salt=salt)
            return place.keep(stream, len(prompt), observation)

    results = await asyncio.gather(*map(submit, prompts, observations), return_exceptions=True)
    streams = [result for result in results if not isinstance(result, BaseException)]
    for result in results:
        if isinstance(result, BaseException):
            await asyncio.gather(*(stream.aclose() for stream in streams))
            raise result
    return streams
