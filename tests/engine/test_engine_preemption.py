"""Preempted requests with the demo model in float32: they answer as if nothing had happened."""

from __future__ import annotations

import asyncio

import pytest

from engine import SamplingParams
from tests.engine.real_model import Answer, answer, answers, chat, encode, follow, loaded, real_engine, undisturbed

GREEDY = SamplingParams(max_tokens=35, temperature=0, ignore_eos=True)
TIGHT = {"num_blocks": 7, "max_num_batched_tokens": 64}

# Ways out: by swap, by recompute, by swap with a pool too small for all, as the cost model chooses.
WAYS = [
    {"preemption": "swap", "num_swap_blocks": 32},
    {"preemption": "recompute", "num_swap_blocks": 32},
    {"preemption": "swap", "num_swap_blocks": 0},
    {"preemption": "swap", "num_swap_blocks": 1},
    {"preemption": "swap", "num_swap_blocks": 4},
    {"preemption": "auto", "num_swap_blocks": 32},
]


async def run_tight(requests, **settings) -> list[Answer]:
    """Run requests together where they do not fit; each must answer as it does alone."""
    async with real_engine(**{**TIGHT, **settings}) as engine:
        results = await answers(engine, requests)
        assert engine._manager.counts()[0].held == 0
    assert any(result.interruptions for result in results)
    for result, (prompt, params) in zip(results, requests, strict=True):
        assert result.told == (await undisturbed(prompt, params)).told
    return results


@pytest.mark.parametrize("enable_prefix_cache", [True, False])
@pytest.mark.parametrize("way", WAYS, ids=str)
async def test_greedy_answers_are_those_of_undisturbed_runs(way, enable_prefix_cache):
    prompt = chat("a a a a")
    assert len(prompt) == 34
    await run_tight([(prompt, GREEDY)] * 2, enable_prefix_cache=enable_prefix_cache, **way)


@pytest.mark.parametrize("way", WAYS[:2], ids=str)
async def test_seeded_answers_are_those_of_undisturbed_runs(way):
    prompts = [chat("Tell me a story"), chat("a a a a")]
    params = [SamplingParams(max_tokens=35, temperature=0.8, seed=seed, ignore_eos=True) for seed in (1, 2)]
    await run_tight(list(zip(prompts, params, strict=True)), **way)


@pytest.mark.parametrize("way", WAYS[:2], ids=str)
async def test_penalties_remember_what_came_before_the_preemption(way):
    params = SamplingParams(
        max_tokens=35,
        temperature=0,
        ignore_eos=True,
        repetition_penalty=1.2,
        presence_penalty=0.5,
        frequency_penalty=0.5,
        logprobs=1,
    )
    await run_tight([(chat("a a a a"), params)] * 2, **way)


@pytest.mark.parametrize("enable_prefix_cache", [True, False])
@pytest.mark.parametrize("way", [*WAYS[:2], WAYS[4]], ids=str)
async def test_parallel_samples_are_those_of_undisturbed_runs(way, enable_prefix_cache):
    params = SamplingParams(max_tokens=24, temperature=0.8, seed=3, n=3, ignore_eos=True)
    requests = [(chat("Name a colour"), params), (chat("a a a a"), GREEDY)]
    await run_tight(requests, num_blocks=10, enable_prefix_cache=enable_prefix_cache, **way)


@pytest.mark.parametrize("way", WAYS[:2], ids=str)
async def test_preempted_in_the_middle_of_a_character(way):
    params = SamplingParams(max_tokens=30, temperature=0, ignore_eos=True)
    results = await run_tight([(encode("🌶 " * 9), params)] * 2, num_blocks=6, **way)
    [told] = results[1].interruptions
    so_far = b"".join(loaded().tokenizer.vocabulary[token_id] for token_id in results[1].token_ids[0][:told])
    assert so_far.endswith(b"\xf0\x9f")
    assert "🌶🌶🌶" in results[1].texts[0]


async def run_displaced(prompt, params, **settings) -> Answer:
    """Run a request of the lowest class that three others displace one after another, each soon after it runs."""
    result = Answer()
    async with real_engine(**{**TIGHT, **settings}) as engine:
        running = asyncio.create_task(follow(result, engine, prompt, params, priority="flex"))
        for _ in range(3):
            await result.started.wait()
            result.started.clear()
            await answer(engine, chat("a a a a"), GREEDY, priority="priority")
        await running
    assert len(result.interruptions) == 3
    assert result.told == (await undisturbed(prompt, params)).told
    return result


@pytest.mark.parametrize("enable_prefix_cache", [True, False])
@pytest.mark.parametrize("way", [*WAYS[:2], WAYS[4]], ids=str)
async def test_preempted_again_and_again_from_the_middle_of_the_prompt_on(way, enable_prefix_cache):
    prompt = encode("The quick brown fox jumps over the lazy dog. " * 12)[:70]
    params = SamplingParams(max_tokens=30, temperature=0.8, seed=5, ignore_eos=True)
    settings = {"max_num_batched_tokens": 16, "enable_prefix_cache": enable_prefix_cache}
    result = await run_displaced(prompt, params, **settings, **way)
    assert result.interruptions[0] == 0
