"""Engines on the demo model in float32, its weights loaded once, and answers in a form that is easy to compare."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from engine import ChatMessage, Engine, EngineConfig, Output, SamplingParams
from engine.loading import LoadedModel, load_model


@cache
def loaded() -> LoadedModel:
    return load_model(EngineConfig(dtype="float32", device="cpu"))


def real_engine(**settings: Any) -> Engine:
    """An engine of its own blocks and queues on the shared weights."""
    defaults = {"num_blocks": 256, "num_swap_blocks": 0, "max_num_seqs": 16, "max_num_batched_tokens": 256}
    return Engine(EngineConfig(dtype="float32", device="cpu", **{**defaults, **settings}), load=lambda _: loaded())


def chat(text: str) -> list[int]:
    """The prompt of a user's first message; ``30 + k`` tokens for k words "a"."""
    return loaded().tokenizer.encode_chat([ChatMessage("user", text)])


def encode(text: str) -> list[int]:
    return loaded().tokenizer.encode(text)


@dataclass(slots=True)
class Answer:
    """All that was told of one request.

    Attributes:
        token_ids, texts, finish_reasons: of each sequence by its index; the same for all that compare requests.
        started: set when the request begins to run, first or again.
        interruptions: the number of tokens that had been told, of all sequences, at each preemption.
    """

    token_ids: dict[int, list[int]] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    finish_reasons: dict[int, str] = field(default_factory=dict)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    interruptions: list[int] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)

    def add(self, output: Output) -> None:
        assert output.index not in self.finish_reasons or output.notice, "something after a sequence's end"
        if output.notice == "preempted":
            self.interruptions.append(sum(map(len, self.token_ids.values())))
        elif output.notice is not None:
            self.started.set()
        if output.notice is not None:
            return
        self.outputs.append(output)
        self.token_ids.setdefault(output.index, []).extend(output.token_ids)
        self.texts[output.index] = self.texts.get(output.index, "") + output.text
        if output.finish_reason is not None:
            self.finish_reasons[output.index] = output.finish_reason

    @property
    def told(self) -> tuple[dict[int, list[int]], dict[int, str], dict[int, str]]:
        return self.token_ids, self.texts, self.finish_reasons

    @property
    def cached_tokens(self) -> int:
        return self.outputs[-1].usage.cached_tokens


async def answer(engine: Engine, prompt: str | Sequence[int], params: SamplingParams, **options: Any) -> Answer:
    result = Answer()
    await follow(result, engine, prompt, params, **options)
    return result


async def follow(
    result: Answer, engine: Engine, prompt: str | Sequence[int], params: SamplingParams, **options: Any
) -> None:
    """Fill in an answer that others may look at meanwhile."""
    async for output in await engine.submit(prompt, params, **options):
        result.add(output)


async def answers(
    engine: Engine, requests: Iterable[tuple[Sequence[int], SamplingParams]], **options: Any
) -> list[Answer]:
    """Answers to requests that run together."""
    return await asyncio.gather(*(answer(engine, prompt, params, **options) for prompt, params in requests))


_undisturbed: dict[str, Answer] = {}


async def undisturbed(prompt: Sequence[int], params: SamplingParams) -> Answer:
    """The answer of a run alone, with blocks for all and nothing cached."""
    key = repr((prompt, params))
    if key not in _undisturbed:
        async with real_engine(enable_prefix_cache=False) as engine:
            _undisturbed[key] = await answer(engine, prompt, params)
    return _undisturbed[key]
