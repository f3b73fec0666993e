"""The offline measurement: all prompts at once, exact lengths, one line per batch size."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Self

import pytest

from bench import throughput
from bench.throughput import Load, measure, random_prompts
from engine import EngineConfig, Output, SamplingParams, Usage


class CountingEngine:
    """Answers with single tokens, and keeps what it was asked."""

    short_by = 0
    asked: list[tuple[list[int], SamplingParams]]

    def __init__(self, config: EngineConfig) -> None:
        assert not config.enable_prefix_cache
        type(self).asked = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def generate(self, prompt: Sequence[int], params: SamplingParams) -> AsyncIterator[Output]:
        self.asked.append((list(prompt), params))
        assert params.max_tokens is not None
        for position in range(params.max_tokens - self.short_by):
            yield Output(0, (position,), "x", None, Usage(len(prompt), position + 1, 0))


async def test_each_batch_size_gives_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(throughput, "Engine", CountingEngine)
    await measure(EngineConfig(enable_prefix_cache=False), Load((1, 3), num_input=5, num_output=4))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["peer"], line["n"], line["input"], line["output"]) for line in lines] == [
        ("chatsrv", 1, 5, 4),
        ("chatsrv", 3, 5, 4),
    ]
    assert all(line["out_tok_s"] > 0 for line in lines)
    assert [len(prompt) for prompt, _ in CountingEngine.asked] == [5] * 4
    assert all(params.is_greedy and params.ignore_eos for _, params in CountingEngine.asked)


async def test_a_short_answer_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throughput, "Engine", CountingEngine)
    monkeypatch.setattr(CountingEngine, "short_by", 1)
    with pytest.raises(AssertionError, match="asked for 4 tokens each"):
        await measure(EngineConfig(enable_prefix_cache=False), Load((2,), num_input=5, num_output=4))


def test_prompts_share_no_prefix_and_hold_no_control_token() -> None:
    random.seed(0)
    prompts = random_prompts(16, 8)
    assert len({prompt[0] for prompt in prompts}) == 16
    assert min(min(prompt) for prompt in prompts) >= 1000
