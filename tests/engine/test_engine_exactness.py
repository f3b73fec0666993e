"""The demo model in float32, through the whole engine: exactly the tokens of ``generate`` of transformers."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from engine import SamplingParams
from tests.engine.models.tiny import generate_with_transformers
from tests.engine.real_model import answer, answers, encode, real_engine

LENGTHS = (1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 48, 64, 100, 128, 200, 257, 333, 450, 600)
GREEDY = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
TEXT = (
    "the a of river engine winter stone letter bridge copper garden signal paper candle valley silver thunder market "
    "says that and then because 1847 3.14 def return import Paris London naïve café ďábelské 你好 🌶 -> {} () . ; : ? \n"
)


@pytest.fixture(autouse=True)
def single_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def prompts() -> list[list[int]]:
    rng = random.Random(11)
    return [encode(" ".join(rng.choices(TEXT.split(" "), k=length + 8)))[:length] for length in LENGTHS]


@pytest.fixture(scope="module")
def expected(smollm2_by_transformers: Any) -> list[list[int]]:
    return [generate_with_transformers(smollm2_by_transformers, prompt, 8) for prompt in prompts()]


async def test_each_prompt_alone(expected: list[list[int]]) -> None:
    async with real_engine(enable_prefix_cache=False) as engine:
        for prompt, tokens in zip(prompts(), expected, strict=True):
            assert len(prompt) in LENGTHS
            assert (await answer(engine, prompt, GREEDY)).token_ids == {0: tokens}


async def test_all_prompts_together(expected: list[list[int]]) -> None:
    """Long prompts in chunks beside short ones that already decode; then all again, from the prefix cache."""
    requests = [(prompt, GREEDY) for prompt in prompts()]
    async with real_engine(max_num_batched_tokens=128) as engine:
        for _ in range(2):
            results = await answers(engine, requests)
            assert [result.token_ids for result in results] == [{0: tokens} for tokens in expected]
        assert results[-1].cached_tokens >= 592
