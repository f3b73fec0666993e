"""Tiny models in the whole engine, under so little memory that it must chunk, preempt and reuse."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from engine import Engine, EngineConfig, PreemptionMode, SamplingParams

BLOCK_SIZE = 8
NUM_BLOCKS = 13
MAX_NUM_BATCHED_TOKENS = 16


async def check_in_engine(
    path: Path, prompts: Sequence[Sequence[int]], expected: Sequence[Sequence[int]], preemption: PreemptionMode
) -> None:
    """Continue all prompts at once, twice, greedily; compare with what they must give."""
    config = EngineConfig(
        model=str(path),
        dtype="float32",
        device="cpu",
        block_size=BLOCK_SIZE,
        num_blocks=NUM_BLOCKS,
        num_swap_blocks=NUM_BLOCKS if preemption == "swap" else 0,
        max_num_seqs=8,
        max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
        preemption=preemption,
    )
    async with Engine(config) as engine:
        params = SamplingParams(max_tokens=len(expected[0]), temperature=0, ignore_eos=True)
        for _ in range(2):
            assert await asyncio.gather(*(_tokens(engine, prompt, params) for prompt in prompts)) == expected
        stats = engine.stats()
        assert stats.preemptions.swap + stats.preemptions.recompute > 0
        assert stats.num_cached_tokens > 0
        assert max(map(len, prompts)) > MAX_NUM_BATCHED_TOKENS, "no prompt was long enough to be chunked"


async def _tokens(engine: Engine, prompt: Sequence[int], params: SamplingParams) -> list[int]:
    return [token_id async for output in engine.generate(prompt, params) for token_id in output.token_ids]
