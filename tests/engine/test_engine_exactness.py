"""The demo model in float32 answers exactly as transformers generates, whoever else is being answered."""

from __future__ import annotations

from typing import Any

from engine import SamplingParams
from tests.engine.models.tiny import generate_with_transformers
from tests.engine.real_model import answer, answers, chat, encode, real_engine

NUM_TOKENS = 10
GREEDY = SamplingParams(max_tokens=NUM_TOKENS, temperature=0, ignore_eos=True)

TEXT = (
    "The old harbour lay quiet under the winter sky. Nets hung from the wooden posts, stiff with frost, and the boats "
    "knocked softly against the stones. A woman in a grey coat walked along the quay, counting the lamps as she passed "
    "them. She had a letter in her pocket, and she knew it by heart: three lines, a date, and a name that she had not "
    "heard for twenty years. At the end of the quay she stopped. 'Is anybody there?' she asked. Nobody answered, but a "
    "door opened somewhere above her, and a yellow light fell across the steps. def f(a): return a + 1. Le chat dort. "
)
LENGTHS = (1, 2, 3, 5, 8, 13, 15, 16, 17, 21, 31, 32, 33, 47, 64, 65, 100, 150, 255, 300, 420, 600)


def prompts() -> list[list[int]]:
    """Cut from different places of the text, so that none is the beginning of another; and a chat."""
    ids = encode(TEXT * 7)
    return [*(ids[3 * number : 3 * number + length] for number, length in enumerate(LENGTHS)), chat("Who are you?")]


async def test_alone_and_together(smollm2_by_transformers: Any) -> None:
    expected = [generate_with_transformers(smollm2_by_transformers, prompt, NUM_TOKENS) for prompt in prompts()]
    async with real_engine(num_blocks=300, enable_prefix_cache=False) as engine:
        alone = [(await answer(engine, prompt, GREEDY)).token_ids[0] for prompt in prompts()]
        together = [one.token_ids[0] for one in await answers(engine, [(prompt, GREEDY) for prompt in prompts()])]
    assert alone == expected
    assert together == expected
