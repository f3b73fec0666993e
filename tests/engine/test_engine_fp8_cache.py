"""Engines whose keys and values have 8 bits: another precision, the same promises."""

from __future__ import annotations

import pytest

from engine import ConfigError, Engine, SamplingParams
from kernels import reference
from tests.engine.real_model import answer, answers, chat, loaded, real_engine

GREEDY = SamplingParams(max_tokens=40, temperature=0, ignore_eos=True)


@pytest.fixture
def plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without a compiler: the native kernels of a CPU know no such numbers."""
    monkeypatch.setattr("kernels.backends._best_backend", lambda device_type: reference)


def fp8_engine(num_blocks: int, num_swap_blocks: int = 0) -> Engine:
    return real_engine(kv_cache_dtype="fp8", num_blocks=num_blocks, num_swap_blocks=num_swap_blocks)


@pytest.mark.usefixtures("plain_kernels")
async def test_answers_do_not_depend_on_neighbours_swapping_or_cached_blocks() -> None:
    prompts = [chat("What is the capital of France? Answer in one sentence."), chat("Count from one to twenty.")]
    alone = []
    for prompt in prompts:
        async with fp8_engine(num_blocks=64) as engine:
            alone.append((await answer(engine, prompt, GREEDY)).told)
    assert "Paris" in alone[0][1][0]
    async with fp8_engine(num_blocks=7, num_swap_blocks=16) as engine:
        together = await answers(engine, [(prompt, GREEDY) for prompt in prompts])
        again = await answer(engine, prompts[0], GREEDY)
        preemptions = engine.stats().preemptions
    assert [each.told for each in together] == alone
    assert again.told == alone[0]
    assert again.cached_tokens > 0
    assert preemptions.swap + preemptions.recompute > 0
    assert loaded().model.layout(16).block_bytes == 4 * engine._runner._cache.layout.block_bytes


async def test_a_device_whose_kernels_cannot_read_it_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.sizing.supports", lambda device_type, layout: False)
    with pytest.raises(ConfigError, match="kv_cache_dtype"):
        async with fp8_engine(num_blocks=8):
            pass
