"""Sampling through the whole engine with the demo model in float32."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
import torch

from engine import Engine, InvalidRequest, SamplingParams
from engine.randomness import sequence_seed
from tests.engine.real_model import Answer, answer, answers, chat, encode, follow, real_engine, undisturbed

EOS = 2
VOCAB_SIZE = 49152
SEEDED = SamplingParams(max_tokens=16, temperature=0.8, seed=42, ignore_eos=True)
GREEDY = SamplingParams(max_tokens=8, temperature=0, ignore_eos=True)

TEXTS = [
    "a a",
    "Hi",
    "Name three rivers.",
    "What is the capital of France?",
    "Write a haiku about rain.",
    "1, 2, 3,",
    "Translate 'good morning' into Spanish.",
    "Why is the sky blue? Answer in one sentence.",
    "def fibonacci(n):",
    "Tell me a joke about cats and dogs.",
]


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[Engine]:
    async with real_engine() as engine:
        yield engine


class TestTemperature:
    @pytest.mark.parametrize("temperature", [1e-5, 1e-38, 5e-324, 2.0])
    async def test_extreme_ones_harm_nobody(self, engine: Engine, temperature: float):
        prompt = chat("Name three rivers.")
        odd, normal, greedy = await answers(
            engine, [(prompt, replace(GREEDY, temperature=temperature)), (prompt, SEEDED), (prompt, GREEDY)]
        )
        assert len(odd.token_ids[0]) == 8
        assert normal.told == (await undisturbed(prompt, SEEDED)).told
        if temperature < 1:
            assert odd.told == greedy.told

    @pytest.mark.parametrize("temperature", [-1.0, 2.01, 1e308, math.nan, math.inf])
    async def test_impossible_ones_are_refused(self, engine: Engine, temperature: float):
        with pytest.raises(InvalidRequest, match="temperature"):
            await answer(engine, [1], SamplingParams(temperature=temperature))


class TestSeeds:
    async def test_the_text_does_not_depend_on_neighbours_or_cache_hits(self, engine: Engine):
        prompt = chat("Tell me a story")
        alone = await answer(engine, prompt, SEEDED)
        again = await answer(engine, prompt, SEEDED)
        assert again.cached_tokens >= 16
        unseeded, seven = replace(SEEDED, seed=None), replace(SEEDED, seed=7)
        beside, other, another = await answers(engine, [(prompt, SEEDED), (prompt, unseeded), (prompt, seven)])
        assert alone.told == again.told == beside.told == (await undisturbed(prompt, SEEDED)).told
        assert len({tuple(a.token_ids[0]) for a in (alone, other, another)}) == 3

    async def test_without_a_seed_two_runs_differ(self, engine: Engine):
        unseeded = replace(SEEDED, seed=None, temperature=1.5)
        one, other = await answers(engine, [(chat("Tell me a story"), unseeded)] * 2)
        assert one.token_ids != other.token_ids

    async def test_several_samples_equal_runs_of_their_own_with_the_derived_seeds(self, engine: Engine):
        prompt = chat("Name a colour")
        many = await answer(engine, prompt, replace(SEEDED, n=4))
        for index in range(4):
            alone = await undisturbed(prompt, replace(SEEDED, seed=sequence_seed(42, index)))
            assert many.token_ids[index] == alone.token_ids[0]
            assert many.texts[index] == alone.texts[0]
        assert len({tuple(tokens) for tokens in many.token_ids.values()}) == 4

    async def test_samples_go_on_when_one_of_them_has_ended(self, engine: Engine):
        prompt, params = chat("Name a colour"), replace(SEEDED, n=3, seed=1, temperature=1.0)
        free = await answer(engine, prompt, params)
        early = free.token_ids[1][3]
        assert early not in free.token_ids[0] + free.token_ids[2]
        stopped = await answer(engine, prompt, replace(params, stop_token_ids=(early,)))
        assert stopped.finish_reasons == {0: "length", 1: "stop", 2: "length"}
        assert stopped.token_ids == {**free.token_ids, 1: free.token_ids[1][:4]}

    async def test_the_best_of_several_samples_are_those_of_highest_mean_logprob(self, engine: Engine):
        prompt = chat("Name a colour")
        every = await answer(engine, prompt, replace(SEEDED, n=4, logprobs=0))
        best = await answer(engine, prompt, replace(SEEDED, n=2, best_of=4))

        def mean_logprob(index: int) -> float:
            values = [p.chosen.logprob for o in every.outputs if o.index == index for p in o.logprobs]
            return sum(values) / len(values)

        order = sorted(range(4), key=mean_logprob, reverse=True)
        assert [best.texts[i] for i in range(2)] == [every.texts[i] for i in order[:2]]


class TestTokenIds:
    @pytest.mark.parametrize("token_id", [VOCAB_SIZE, -1, 2**40])
    @pytest.mark.parametrize("field", ["logit_bias", "stop_token_ids"])
    async def test_outside_the_vocabulary_they_are_refused(self, engine: Engine, field: str, token_id: int):
        value = {token_id: 5.0} if field == "logit_bias" else (token_id,)
        neighbour = asyncio.create_task(answer(engine, chat("Hi"), GREEDY))
        with pytest.raises(InvalidRequest, match=f"{token_id}.*{VOCAB_SIZE - 1}") as refused:
            await answer(engine, chat("Hi"), SamplingParams(min_tokens=1, **{field: value}))
        assert refused.value.field == field
        assert (await neighbour).told == (await undisturbed(chat("Hi"), GREEDY)).told

    @pytest.mark.parametrize("bias", [1e9, math.nan, math.inf, "1", None])
    async def test_impossible_biases_are_refused(self, bias: Any):
        with pytest.raises(InvalidRequest, match="logit_bias"):
            SamplingParams(logit_bias={1: bias})

    async def test_a_bias_forces_and_forbids(self, engine: Engine):
        [pepper] = set(encode(" pepper"))
        forced = await answer(engine, chat("Hi"), replace(GREEDY, logit_bias={pepper: 100.0}))
        assert forced.token_ids[0] == [pepper] * 8
        free = await answer(engine, chat("Hi"), GREEDY)
        forbidden = await answer(engine, chat("Hi"), replace(GREEDY, logit_bias={free.token_ids[0][0]: -100.0}))
        assert free.token_ids[0][0] not in forbidden.token_ids[0]


class TestEnds:
    async def test_min_tokens_keeps_end_of_sequence_away(self, engine: Engine):
        prompt = chat("What is the capital of France? Answer in one word.")
        ended = await answer(engine, prompt, SamplingParams(max_tokens=40, temperature=0))
        num_tokens = len(ended.token_ids[0])
        assert ended.finish_reasons == {0: "stop"}
        assert ended.token_ids[0][-1] == EOS
        longer = await answer(engine, prompt, SamplingParams(max_tokens=40, temperature=0, min_tokens=num_tokens + 3))
        assert len(longer.token_ids[0]) > num_tokens + 3
        assert EOS not in longer.token_ids[0][: num_tokens + 3]

    async def test_a_stop_string_is_cut_and_named(self, engine: Engine):
        free = await answer(engine, chat("Name three rivers."), replace(GREEDY, max_tokens=20))
        text = free.texts[0]
        stop = text[11:17]
        stopped = await answer(engine, chat("Name three rivers."), replace(GREEDY, max_tokens=20, stop=("never", stop)))
        assert stopped.texts[0] == text[: text.index(stop)]
        assert stopped.finish_reasons == {0: "stop"}
        assert stopped.outputs[-1].stop_reason == stop

    async def test_an_answer_may_end_in_the_middle_of_a_character(self, engine: Engine):
        cut = await answer(engine, encode("🌶 " * 9), replace(GREEDY, max_tokens=3))
        assert cut.texts[0] == "\n\ufffd"
        assert cut.finish_reasons == {0: "length"}


class TestLogprobs:
    @pytest.mark.parametrize("params", [{"top_k": 1}, {"logit_bias": {5: -100.0}}, {"top_p": 0.1}, {"min_p": 0.9}])
    async def test_they_are_json(self, engine: Engine, params: dict[str, Any]):
        result = await answer(engine, chat("Hi"), replace(SEEDED, logprobs=5, **params))
        positions = [position for output in result.outputs for position in output.logprobs]
        assert [position.chosen.token_id for position in positions] == result.token_ids[0]
        assert all(len(position.top) == 5 for position in positions)
        values = [token.logprob for position in positions for token in (position.chosen, *position.top)]
        assert json.loads(json.dumps(values, allow_nan=False)) == values
        assert all(value <= 0 for value in values)

    async def test_those_of_a_prompt_are_hugging_face_s(self, smollm2_by_transformers: Any):
        prompt = chat("What is the capital of France?")
        async with real_engine(max_num_batched_tokens=16) as engine:
            await answer(engine, prompt, GREEDY)  # a cached prompt must not hide them
            result = await answer(engine, prompt, replace(GREEDY, prompt_logprobs=3))
        told = result.outputs[0].prompt_logprobs
        assert told is not None
        assert told[0] is None
        with torch.no_grad():
            expected = smollm2_by_transformers(torch.tensor([prompt])).logits[0, :-1].log_softmax(-1)
        assert [p.chosen.token_id for p in told[1:] if p] == prompt[1:]
        for position, row in zip(told[1:], expected, strict=True):
            assert position is not None
            assert position.chosen.logprob == pytest.approx(row[position.chosen.token_id].item(), abs=1e-3)
            assert [t.logprob for t in position.top] == pytest.approx(row.topk(3).values.tolist(), abs=1e-3)


class TestBeams:
    """Twenty prompts, each once; settings change from one to the next."""

    SETTINGS = (
        {"width": 2, "length_penalty": 1.0, "early_stopping": False},
        {"width": 4, "length_penalty": 0.0, "early_stopping": True},
        {"width": 3, "length_penalty": 2.0, "early_stopping": "never"},
    )

    @staticmethod
    def by_hugging_face(
        model: Any, prompt: list[int], width: int, **settings: Any
    ) -> tuple[list[list[int]], list[float]]:
        generated = model.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt)),
            num_beams=width,
            num_return_sequences=width,
            max_new_tokens=12,
            do_sample=False,
            eos_token_id=EOS,
            pad_token_id=EOS,
            output_scores=True,
            return_dict_in_generate=True,
            **settings,
        )
        num_tokens = (generated.beam_indices >= 0).sum(-1).tolist()
        sequences = generated.sequences[:, len(prompt) :].tolist()
        return [s[:n] for s, n in zip(sequences, num_tokens, strict=True)], generated.sequences_scores.tolist()

    @staticmethod
    def compare(result: Answer, sequences: list[list[int]], scores: list[float]) -> None:
        assert [result.token_ids[i] for i in range(len(sequences))] == sequences
        assert [output.score for output in result.outputs] == pytest.approx(scores, abs=1e-4)

    async def test_sequences_and_scores_are_hugging_face_s(self, smollm2_by_transformers: Any):
        prompts = [chat(text) for text in TEXTS] + [encode(text) for text in TEXTS]
        async with real_engine(num_blocks=400, max_num_seqs=64) as engine:
            settings = [self.SETTINGS[i % 3] for i in range(len(prompts))]
            results = await answers(
                engine,
                [
                    (
                        prompt,
                        SamplingParams(
                            n=s["width"],
                            use_beam_search=True,
                            max_tokens=12,
                            length_penalty=s["length_penalty"],
                            early_stopping=s["early_stopping"],
                        ),
                    )
                    for prompt, s in zip(prompts, settings, strict=True)
                ],
            )
        for result, prompt, s in zip(results, prompts, settings, strict=True):
            self.compare(result, *self.by_hugging_face(smollm2_by_transformers, prompt, **s))

    @pytest.mark.parametrize("preemption", ["swap", "recompute"])
    async def test_preempted_beams_are_the_same(self, preemption: str):
        """Requests of a higher class take their places, again and again, at whatever token they have come to."""
        params = SamplingParams(n=3, use_beam_search=True, max_tokens=24)
        prompt, beams = chat("Name three rivers."), Answer()
        async with real_engine(max_num_seqs=3, num_swap_blocks=32, preemption=preemption) as engine:
            running = asyncio.create_task(follow(beams, engine, prompt, params, priority="flex"))
            await beams.started.wait()
            while not running.done():
                await answer(engine, chat("Hi"), replace(GREEDY, max_tokens=2), priority="priority")
                await asyncio.sleep(0.1)
        assert beams.interruptions
        expected = await undisturbed(prompt, params)
        assert beams.told == expected.told
        assert [o.score for o in beams.outputs] == pytest.approx([o.score for o in expected.outputs], abs=1e-4)
