"""Who may run, with the demo model in float32: what never fits is refused, what waits gets its turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine import ConfigError, Engine, EngineConfig, InvalidRequest, SamplingParams
from tests.engine.real_model import Answer, answer, answers, chat, encode, follow, real_engine, undisturbed

GREEDY = SamplingParams(max_tokens=35, temperature=0, ignore_eos=True)


def num_preemptions(engine: Engine) -> int:
    preemptions = engine.stats().preemptions
    return preemptions.swap + preemptions.recompute


@pytest.mark.parametrize(
    ("num_words", "params"),
    [
        (100, SamplingParams(temperature=0)),
        (10, SamplingParams(max_tokens=60)),
        (20, SamplingParams(max_tokens=30, n=3)),
    ],
    ids=["prompt", "prompt and answer", "samples"],
)
async def test_what_can_never_fit_is_refused_and_holds_up_nobody(num_words: int, params: SamplingParams):
    short = SamplingParams(max_tokens=5, temperature=0)
    async with real_engine(num_blocks=4) as engine:
        with pytest.raises(InvalidRequest) as refused:
            await answer(engine, encode("a " * num_words), params)
        assert refused.value.code == "context_length_exceeded"
        assert (await answer(engine, chat("hi"), short)).told == (await undisturbed(chat("hi"), short)).told


@pytest.mark.parametrize("preemption", ["swap", "recompute"])
async def test_six_equal_requests_in_two_thirds_of_their_memory_do_not_play_ping_pong(preemption: str):
    requests = [(chat(f"{number} a a a"), GREEDY) for number in range(6)]
    async with real_engine(num_blocks=20, num_swap_blocks=32, preemption=preemption) as engine:
        results = await answers(engine, requests)
        assert engine.stats().num_steps <= 4 * 35
    assert max(len(result.interruptions) for result in results) <= 2
    for result, (prompt, params) in zip(results, requests, strict=True):
        assert result.told == (await undisturbed(prompt, params)).told


async def test_a_higher_class_takes_a_running_request_s_slot():
    long, short = SamplingParams(max_tokens=200, ignore_eos=True), SamplingParams(max_tokens=1)
    async with real_engine(max_num_seqs=2) as engine:
        low = [Answer(), Answer()]
        running = [asyncio.create_task(follow(a, engine, chat("a"), long, priority="flex")) for a in low]
        await asyncio.gather(*(a.started.wait() for a in low))
        num_steps = engine.stats().num_steps
        await answer(engine, chat("hi"), short, priority="priority")
        assert engine.stats().num_steps - num_steps <= 5
        assert num_preemptions(engine) == 1
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_equals_do_not_take_each_other_s_places():
    async with real_engine(max_num_seqs=2) as engine:
        results = await answers(engine, [(chat(text), GREEDY) for text in ("a", "b", "c")])
        assert num_preemptions(engine) == 0
    assert all(len(result.token_ids[0]) == 35 for result in results)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_blocks": 0},
        {"num_blocks": -1},
        {"block_size": 0},
        {"block_size": 7},
        {"block_size": 10**6},
        {"max_model_len": 0},
        {"num_blocks": 1, "max_model_len": 64},
        {"max_model_len": 10**6},
    ],
    ids=str,
)
async def test_impossible_sizes_stop_the_start_and_are_named(settings: dict[str, Any]):
    with pytest.raises(ConfigError, match=list(settings)[-1]):
        async with real_engine(**settings):
            pass


async def test_a_cache_smaller_than_the_model_s_length_lowers_the_limit():
    async with real_engine(num_blocks=1) as engine:
        assert engine.model.max_model_len == 16
        told = await answer(engine, encode("Hello"), SamplingParams(max_tokens=4, temperature=0))
        assert len(told.token_ids[0]) == 4


def test_the_configuration_says_which_limit_is_broken():
    with pytest.raises(ConfigError, match=r"max_model_len \(64\).*num_blocks \(1\).*= 16 tokens"):
        EngineConfig(num_blocks=1, max_model_len=64)
