"""The prefix cache with the demo model in float32: hits change the time an answer takes and nothing else."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from engine import ChatMessage, Engine, EngineConfig, SamplingParams
from tests.engine.real_model import answer, chat, encode, loaded, real_engine

GREEDY = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)
FIRST_LOGITS = SamplingParams(max_tokens=1, temperature=0, logprobs=20)


@pytest.mark.parametrize("num_words", [1, 2, 3])
async def test_a_prompt_at_around_a_block_s_end_again_and_again(num_words: int) -> None:
    """31, 32 and 33 tokens: all but the last token of the prompt are found, and the blocks stay right."""
    prompt = chat("a " * (num_words - 1) + "a")
    assert len(prompt) == 30 + num_words
    async with real_engine(enable_prefix_cache=False) as engine:
        expected = (await answer(engine, prompt, GREEDY)).told
    async with real_engine() as engine:
        for cached in (0, len(prompt) - 1, len(prompt) - 1, len(prompt) - 1, len(prompt) - 1):
            result = await answer(engine, prompt, GREEDY)
            assert result.told == expected
            assert result.cached_tokens == cached


async def test_first_logits_are_the_same_cold_warm_and_without_a_cache() -> None:
    text = encode("The river runs down from the hills, past the mill and the old stone bridge, to the harbour. " * 8)
    async with real_engine(num_blocks=600) as engine, real_engine(enable_prefix_cache=False) as uncached:
        for length in range(17, 67):
            prompt = text[length : 2 * length]
            cold, warm = [await answer(engine, prompt, FIRST_LOGITS) for _ in range(2)]
            truth = await answer(uncached, prompt, FIRST_LOGITS)
            assert warm.cached_tokens == length - 1
            expected = [one.logprob for one in truth.outputs[0].logprobs[0].top]
            for result in (cold, warm):
                told = [one.logprob for one in result.outputs[0].logprobs[0].top]
                assert told == pytest.approx(expected, abs=1e-3)
                assert result.token_ids == truth.token_ids


async def test_nobody_can_time_another_salt_s_prompts() -> None:
    secret = encode("the vault opens to the word heliotrope " * 40)
    async with real_engine() as engine:
        cached = [(await answer(engine, secret, GREEDY, salt=salt)).cached_tokens for salt in (b"a", b"b", b"a", b"")]
    assert cached == [0, 0, len(secret) - 1, 0]


async def test_the_next_turn_finds_the_answer_that_was_generated() -> None:
    """Spliced ids, not re-tokenised text: " " then "~" are drawn, though the text would be one token."""
    drawn = encode(" ") + encode("~")
    assert drawn != encode(" ~")
    question = chat("a a")
    forced = [SamplingParams(max_tokens=1, temperature=0, logit_bias={token: 100.0}) for token in drawn]
    async with real_engine() as engine:
        first = await answer(engine, question, forced[0])
        second = await answer(engine, [*question, *first.token_ids[0]], forced[1])
        assert first.token_ids[0] + second.token_ids[0] == drawn
        turns = [
            ChatMessage("user", "a a"),
            ChatMessage("assistant", " ~", token_ids=tuple(drawn)),
            ChatMessage("user", "a"),
        ]
        prompt = await engine.encode_chat(turns)
        assert prompt[: len(question) + 2] == [*question, *drawn]
        third = await answer(engine, prompt, GREEDY)
        assert third.cached_tokens == len(question) + 1, "the token drawn last has not been computed yet"
    async with real_engine(enable_prefix_cache=False) as engine:
        assert third.told == (await answer(engine, prompt, GREEDY)).told


async def test_other_weights_never_find_old_blocks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keys begin with the fingerprint of the weights; blocks live as long as the engine, which has one model."""
    prompt = chat("a a a a")
    other = dataclasses.replace(loaded(), fingerprint="other weights")
    async with real_engine() as engine:
        await answer(engine, prompt, GREEDY)
        key = engine.locate_prefix(prompt).key
        assert key is not None
    async with Engine(EngineConfig(dtype="float32", num_blocks=64), load=lambda _: other) as engine:
        assert (await answer(engine, prompt, GREEDY)).cached_tokens == 0
        assert engine.locate_prefix(prompt).key != key


async def test_prefixes_evicted_to_cpu_memory_come_back_right() -> None:
    prompts = [chat(" ".join([word] * 40)) for word in ("river", "stone", "market")]
    async with real_engine(enable_prefix_cache=False) as engine:
        expected = [(await answer(engine, prompt, GREEDY)).told for prompt in prompts]
    async with real_engine(num_blocks=8, num_swap_blocks=40) as engine:
        for round_number in range(3):
            for prompt, told in zip(prompts, expected, strict=True):
                result = await answer(engine, prompt, GREEDY)
                assert result.told == told
                assert result.cached_tokens == (len(prompt) - 1 if round_number else result.cached_tokens)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Sums in one order, so that cold and warm runs differ by nothing but the cache."""
    torch.set_num_threads(1)
