"""Tokens against distributions computed one row at a time, by Hugging Face's code and by definition."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine.api import InvalidRequest, SamplingParams
from engine.plan import Draw
from engine.race import CHUNK, exponentials
from engine.randomness import sequence_seed, token_seed
from engine.sampler import MIN_LOGPROB, Sampler, position_logprobs


def draw(*, seed=0, index=0, position=0, prompt=(), output=(), banned=(), num_candidates=0, **params):
    return Draw(SamplingParams(**params), seed, index, position, prompt, output, banned, num_candidates)


def random_logits(num_rows, vocab_size, spread=3.0, seed=0):
    return torch.randn(num_rows, vocab_size, generator=torch.Generator().manual_seed(seed)) * spread


def sample(logits, draws):
    return Sampler().sample(logits, draws)


def sample_ids(logits, draws):
    return [drawn.token.token_id for drawn in sample(logits, draws)]


def hugging_face_probabilities(row, params):
    warpers = LogitsProcessorList([TemperatureLogitsWarper(params.temperature)])
    if params.min_p:
        warpers.append(MinPLogitsWarper(params.min_p))
    if params.top_k:
        warpers.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        warpers.append(TopPLogitsWarper(params.top_p))
    return warpers(None, row.double().unsqueeze(0)).softmax(-1)[0]


def race(probabilities, seed, position):
    """The winner by definition: of the chunks of token ids, then of the ids in that chunk."""
    chunks = [probabilities[i : i + CHUNK] for i in range(0, len(probabilities), CHUNK)]
    times = exponentials([token_seed(seed, position)], CHUNK + len(chunks))[0]
    best = max(range(len(chunks)), key=lambda i: sum(chunks[i]) / times[CHUNK + i])
    return best * CHUNK + max(range(len(chunks[best])), key=lambda i: chunks[best][i] / times[i])


class TestDistribution:
    @pytest.mark.parametrize("vocab_size", [50, 1000, 5000])
    @pytest.mark.parametrize("spread", [0.5, 3.0, 10.0])
    @pytest.mark.parametrize(
        "params",
        [
            {},
            {"temperature": 0.3},
            {"temperature": 2.0},
            {"top_k": 1},
            {"top_k": 40},
            {"top_k": 700},
            {"top_p": 0.01},
            {"top_p": 0.5},
            {"top_p": 0.95},
            {"top_p": 0.9999},
            {"min_p": 0.05},
            {"min_p": 0.001},
            {"top_k": 30, "top_p": 0.8},
            {"top_k": 600, "top_p": 0.99},
            {"min_p": 0.02, "top_p": 0.8},
            {"min_p": 1e-6, "top_p": 0.3},
            {"temperature": 0.8, "min_p": 0.02, "top_k": 30, "top_p": 0.8},
        ],
        ids=str,
    )
    def test_tokens_come_from_hugging_face_s_distribution(self, vocab_size, spread, params):
        num_rows = 16
        logits = random_logits(num_rows, vocab_size, spread)
        draws = [draw(seed=5, position=i, **params) for i in range(num_rows)]
        expected = [
            race(hugging_face_probabilities(row, d.params).tolist(), 5, d.position)
            for row, d in zip(logits, draws, strict=True)
        ]
        assert sample_ids(logits, draws) == expected

    @pytest.mark.parametrize("params", [{}, {"top_p": 0.9}, {"min_p": 0.1, "temperature": 1.5}], ids=str)
    def test_frequencies_are_the_probabilities(self, params):
        row, num_draws = random_logits(1, 10, spread=1.0), 20_000
        ids = sample_ids(row.expand(num_draws, -1), [draw(seed=3, position=i, **params) for i in range(num_draws)])
        expected = hugging_face_probabilities(row[0], SamplingParams(**params)).numpy() * num_draws
        counts = np.bincount(ids, minlength=10)
        kept = expected > 0
        assert not counts[~kept].any()
        # Chi-square with up to 9 degrees of freedom: above 27.9 once in a thousand.
        assert ((counts - expected)[kept] ** 2 / expected[kept]).sum() < 27.9

    @given(st.lists(st.integers(0, 3), min_size=1, max_size=600), st.integers(1, 5), st.integers(0, 2**32))
    def test_of_equally_likely_tokens_top_k_keeps_those_with_the_smaller_ids(self, row, top_k, seed):
        order = sorted(range(len(row)), key=lambda i: (-row[i], i))[:top_k]
        probabilities = np.zeros(len(row))
        probabilities[order] = np.exp(np.array(row)[order])
        [token_id] = sample_ids(torch.tensor([row]).float(), [draw(seed=seed, top_k=top_k)])
        assert token_id == race(probabilities.tolist(), seed, 0)

    def test_of_a_flat_distribution_top_p_keeps_its_share(self):
        flat = torch.zeros(500, 1000)
        ids = sample_ids(flat, [draw(position=i, top_p=0.3) for i in range(500)])
        assert 270 < max(ids) < 300
        assert min(ids) < 30

    def test_the_last_bits_of_the_logits_do_not_matter(self):
        logits = random_logits(64, 5000, spread=1.5)
        noisy = logits + 1e-5 * random_logits(64, 5000, spread=1.0, seed=1)
        for params in ({}, {"top_p": 0.9}, {"top_k": 50}):
            draws = [draw(seed=i, **params) for i in range(64)]
            assert sample_ids(logits, draws) == sample_ids(noisy, draws)


class TestGreedy:
    @pytest.mark.parametrize("temperature", [0, 1e-5 / 2, 1e-38, 5e-324])
    def test_tiny_temperatures_are_greedy_and_harm_no_neighbour(self, temperature):
        logits = random_logits(2, 1000)
        ids = sample_ids(logits, [draw(temperature=temperature), draw(temperature=1.0)])
        assert ids == [logits[0].argmax(), sample_ids(logits[1:], [draw(temperature=1.0)])[0]]

    def test_a_temperature_just_above_is_as_good_as_greedy(self):
        logits = random_logits(8, 1000)
        assert sample_ids(logits, [draw(temperature=1e-5, seed=i) for i in range(8)]) == logits.argmax(-1).tolist()

    def test_alike_logits_are_drawn_uniformly(self):
        ids = sample_ids(random_logits(400, 1000) * 1e-6, [draw(temperature=2.0, seed=i) for i in range(400)])
        assert len(set(ids)) > 300

    @pytest.mark.parametrize("temperature", [-1, 1e308, math.nan, math.inf])
    def test_other_temperatures_are_refused(self, temperature):
        with pytest.raises(InvalidRequest, match="temperature"):
            draw(temperature=temperature)

    def test_a_penalty_changes_the_winner(self):
        logits = torch.tensor([[1.0, 2.0, 1.5]])
        assert sample_ids(logits, [draw(temperature=0, output=[1], presence_penalty=1.0)]) == [2]
        assert sample_ids(logits, [draw(temperature=0, banned=[1])]) == [2]


class TestSeeds:
    def test_a_sequence_of_many_equals_a_run_of_its_own_with_the_derived_seed(self):
        logits = random_logits(1, 1000).expand(4, -1)
        many = sample_ids(logits, [draw(seed=1, index=i, n=4) for i in range(4)])
        alone = [sample_ids(logits[:1], [draw(seed=sequence_seed(1, i))])[0] for i in range(4)]
        assert many == alone
        assert len(set(many)) > 1

    def test_nobody_is_moved_by_neighbours(self):
        kinds = [
            {"temperature": 0},
            {"temperature": 0.8},
            {"temperature": 0.8, "top_p": 0.9},
            {"temperature": 1.2, "top_k": 5, "logprobs": 2},
            {"temperature": 0, "output": [1, 2, 3], "repetition_penalty": 2.0},
            {"temperature": 1, "output": [1, 2, 3], "frequency_penalty": 2.0, "min_p": 0.1},
            {"banned": [0], "use_beam_search": True, "num_candidates": 4},
        ]
        draws = [draw(seed=i, position=i, **kinds[i % len(kinds)]) for i in range(35)]
        logits = random_logits(35, 2000)
        together = sample(logits, draws)
        alone = [sample(logits[i : i + 1], [draws[i]])[0] for i in range(35)]
        for one, other in zip(together, alone, strict=True):
            assert one.token.token_id == other.token.token_id
            assert [t.token_id for t in one.top] == [t.token_id for t in other.top]

    def test_the_logits_are_not_changed(self):
        logits = random_logits(2, 100)
        before = logits.clone()
        for params in ({}, {"top_p": 0.5}, {"temperature": 0, "logit_bias": {1: 9.0}}, {"num_candidates": 3}):
            sample(logits, [draw(banned=[5], **params)] * 2)
        assert torch.equal(logits, before)

    def test_nothing_to_draw(self):
        assert sample(torch.empty(0, 10), []) == []


class TestBadRows:
    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    @pytest.mark.parametrize(
        "params",
        [
            {"temperature": 0},
            {"temperature": 1.0},
            {"top_p": 0.9},
            {"top_k": 3, "logprobs": 3},
            {"num_candidates": 4},
            {"temperature": 0, "output": [7], "presence_penalty": 1.0},
        ],
        ids=str,
    )
    def test_a_row_with_nan_or_infinity_fails_alone(self, bad, params):
        logits = random_logits(3, 600)
        logits[1, 7] = bad
        drawn = sample(logits, [draw(**params)] * 3)
        assert [d.failed for d in drawn] == [False, True, False]
        assert drawn[2].token.token_id == sample_ids(logits[2:], [draw(**params)])[0]

    @pytest.mark.parametrize("params", [{"temperature": 0}, {}, {"top_p": 0.9}, {"num_candidates": 4}], ids=str)
    def test_a_row_with_nothing_left_fails_alone(self, params):
        logits = random_logits(2, 5)
        drawn = sample(logits, [draw(banned=range(5), **params), draw(**params)])
        assert [d.failed for d in drawn] == [True, False]

    @pytest.mark.parametrize("params", [{}, {"top_p": 0.9}, {"top_k": 600}, {"min_p": 0.5}], ids=str)
    def test_a_single_token_left_is_drawn(self, params):
        logits = torch.full((1, 600), -math.inf)
        logits[0, 321] = -7.0
        assert sample(logits, [draw(**params)])[0].token.token_id == 321
        assert not sample(logits, [draw(**params)])[0].failed


class TestLogprobs:
    def test_they_are_those_of_the_raw_logits(self):
        logits = random_logits(3, 500)
        params = {"temperature": 0.5, "top_k": 10, "banned": [3], "output": [4], "presence_penalty": 2.0}
        drawn = sample(logits, [draw(seed=i, logprobs=i, **params) for i in range(3)])
        expected = logits.log_softmax(-1)
        for i, d in enumerate(drawn):
            assert d.token.logprob == pytest.approx(expected[i, d.token.token_id].item(), abs=1e-5)
            assert [t.token_id for t in d.top] == expected[i].topk(i).indices.tolist()
            assert [t.logprob for t in d.top] == pytest.approx(expected[i].topk(i).values.tolist(), abs=1e-5)

    def test_they_are_there_to_choose_the_best_of_several_sequences(self):
        logits = random_logits(2, 500)
        [asked, not_asked] = sample(logits, [draw(n=1, best_of=3), draw(n=3)])
        assert asked.token.logprob < 0.0 == not_asked.token.logprob
        assert asked.top == ()

    @pytest.mark.parametrize("params", [{"top_k": 1}, {"logit_bias": {0: -100.0}}, {"temperature": 0}], ids=str)
    def test_they_are_json(self, params):
        logits = torch.full((1, 30), -math.inf)
        logits[0, 4] = 1.0
        [d] = sample(logits, [draw(logprobs=20, **params)])
        text = json.dumps([(t.token_id, t.logprob) for t in (d.token, *d.top)], allow_nan=False)
        assert json.loads(text)[1] == [4, 0.0]
        assert json.loads(text)[2][1] == MIN_LOGPROB

    @settings(max_examples=30)
    @given(st.integers(1, 8), st.integers(0, 7), st.integers(0, 2**32))
    def test_positions_of_a_prompt(self, num_rows, num_top, seed):
        logits = random_logits(num_rows, 50, seed=seed)
        token_ids = list(range(num_rows))
        expected = logits.log_softmax(-1)
        for i, position in enumerate(position_logprobs(logits, token_ids, num_top)):
            assert position.chosen.token_id == i
            assert position.chosen.logprob == pytest.approx(expected[i, i].item(), abs=1e-5)
            assert [t.token_id for t in position.top] == expected[i].topk(num_top).indices.tolist()

    def test_broken_logits_give_finite_numbers_too(self):
        logits = torch.tensor([[math.nan, 1.0, 2.0], [-math.inf, -math.inf, -math.inf], [math.inf, 0.0, 0.0]])
        for position in position_logprobs(logits, [0, 1, 2], 3):
            assert all(math.isfinite(t.logprob) for t in (position.chosen, *position.top))


class TestCandidates:
    def test_they_are_hugging_face_s(self):
        logits, history = random_logits(3, 400), [5, 6, 7, 8]
        draws = [
            draw(num_candidates=8, prompt=history, repetition_penalty=1.5),
            draw(num_candidates=4, banned=[logits[1].argmax().item()]),
            draw(num_candidates=2),
        ]
        expected = logits.log_softmax(-1)
        expected[0] = RepetitionPenaltyLogitsProcessor(1.5)(torch.tensor([history]), expected[:1].clone())
        expected[1, logits[1].argmax()] = -math.inf
        for d, row, asked in zip(sample(logits, draws), expected, draws, strict=True):
            values, ids = row.topk(asked.num_candidates)
            assert [t.token_id for t in d.top] == ids.tolist()
            assert [t.logprob for t in d.top] == pytest.approx(values.tolist(), abs=1e-5)
            assert d.token == d.top[0]

    def test_what_cannot_be_drawn_is_no_candidate(self):
        [d] = sample(random_logits(1, 6), [draw(num_candidates=6, banned=[0, 1, 2])])
        assert {t.token_id for t in d.top} == {3, 4, 5}
