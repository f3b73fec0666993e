"""Biases, bans and penalties against their definitions, written token by token."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import RepetitionPenaltyLogitsProcessor

from engine.api import SamplingParams
from engine.logit_processors import is_plain, process_logits
from engine.plan import Draw

VOCAB_SIZE = 12


def draw(prompt=(), output=(), banned=(), **params):
    return Draw(SamplingParams(**params), 0, 0, 0, list(prompt), list(output), banned)


def process_by_definition(row, draw):
    params, row = draw.params, list(row)
    for token_id, bias in params.logit_bias.items():
        row[token_id] += bias
    for token_id in draw.banned_token_ids:
        row[token_id] = -math.inf
    for token_id in {*draw.prompt_token_ids, *draw.output_token_ids}:
        penalty = params.repetition_penalty
        row[token_id] = row[token_id] / penalty if row[token_id] > 0 else row[token_id] * penalty
    for token_id in set(draw.output_token_ids):
        count = draw.output_token_ids.count(token_id)
        row[token_id] -= params.presence_penalty + count * params.frequency_penalty
    return row


token_ids = st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=20)
draws = st.builds(
    draw,
    prompt=token_ids,
    output=token_ids,
    banned=st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=3),
    logit_bias=st.dictionaries(st.integers(0, VOCAB_SIZE - 1), st.floats(-100, 100), max_size=3),
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.3]),
    presence_penalty=st.sampled_from([0.0, -1.0, 0.7]),
    frequency_penalty=st.sampled_from([0.0, -0.2, 0.3]),
)


@given(st.lists(draws, min_size=1, max_size=5), st.integers(0, 2**32))
def test_rows_are_processed_as_defined_each_with_its_own_settings(draws, seed):
    logits = torch.randn(len(draws), VOCAB_SIZE, generator=torch.Generator().manual_seed(seed)) * 5
    expected = torch.tensor([process_by_definition(row, d) for row, d in zip(logits.tolist(), draws, strict=True)])
    process_logits(logits, draws)
    torch.testing.assert_close(logits, expected)


def test_repetition_penalty_is_hugging_face_s():
    logits = torch.randn(1, VOCAB_SIZE)
    prompt, output = [1, 2, 3, 3], [5, 1]
    expected = RepetitionPenaltyLogitsProcessor(1.7)(torch.tensor([prompt + output]), logits.clone())
    process_logits(logits, [draw(prompt, output, repetition_penalty=1.7)])
    torch.testing.assert_close(logits, expected)


def test_a_ban_outweighs_bias_and_penalties():
    logits = torch.zeros(1, VOCAB_SIZE)
    banned = draw(output=[3], banned=[3], logit_bias={3: 100.0}, repetition_penalty=0.5, presence_penalty=-100.0)
    process_logits(logits, [banned])
    assert logits[0, 3] == -math.inf


@pytest.mark.parametrize("token_id", [VOCAB_SIZE, -VOCAB_SIZE - 1])
def test_an_id_outside_the_vocabulary_never_reaches_a_neighbour_s_row(token_id):
    logits = torch.zeros(3, VOCAB_SIZE)
    with pytest.raises(IndexError):
        process_logits(logits, [draw(), draw(logit_bias={token_id: 5.0}), draw()])
    assert not logits.any()


@pytest.mark.parametrize(
    "touched",
    [
        draw(banned=[1]),
        draw(logit_bias={1: 1.0}),
        draw(repetition_penalty=1.1),
        draw(presence_penalty=0.1),
        draw(frequency_penalty=-0.1),
    ],
)
def test_only_draws_without_any_of_it_are_plain(touched):
    assert not is_plain(touched)
    assert is_plain(draw(prompt=[1], output=[2], temperature=0.5, top_k=3))
