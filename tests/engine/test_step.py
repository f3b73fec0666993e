"""Rows of a plan: where tokens are drawn, and for whom."""

from __future__ import annotations

from engine.api import SamplingParams
from engine.request import Request, TokenFacts
from engine.step import is_decoding, plan_row

FACTS = TokenFacts([b""] * 100, frozenset({2}))


def make(**params: object) -> Request:
    return Request("r", [5, 6, 7, 8], SamplingParams(seed=3, **params), FACTS, max_tokens=9)  # type: ignore[arg-type]


def test_the_middle_of_a_prompt_draws_nothing() -> None:
    request = make()
    row = plan_row(request, request.sequences[0], 3)
    assert (row.start, list(row.token_ids), row.draws) == (0, [5, 6, 7], ())


def test_the_end_of_a_prompt_draws_for_every_sequence() -> None:
    request = make(n=2)
    row = plan_row(request, request.sequences[0], 4)
    assert [(draw.sequence_index, draw.position, draw.seed) for draw in row.draws] == [(0, 4, 3), (1, 4, 3)]


def test_a_resumed_sequence_draws_only_where_all_it_knows_is_computed() -> None:
    request = make()
    sequence = request.sequences[0]
    sequence.output_token_ids += [9, 9]
    assert plan_row(request, sequence, 5).draws == ()
    (draw,) = plan_row(request, sequence, 6).draws
    assert draw.position == 6


def test_ends_are_banned_before_min_tokens() -> None:
    request = make(min_tokens=1, stop_token_ids=(4,))
    assert set(plan_row(request, request.sequences[0], 4).draws[0].banned_token_ids) == {2, 4}
    request.sequences[0].output_token_ids.append(9)
    assert not plan_row(request, request.sequences[0], 5).draws[0].banned_token_ids


def test_a_beam_asks_for_candidates() -> None:
    request = make(n=2, use_beam_search=True)
    (draw,) = plan_row(request, request.sequences[0], 4).draws
    assert draw.num_candidates == 4


def test_log_probabilities_of_a_prompt_reach_over_the_chunk_s_end() -> None:
    request = make(prompt_logprobs=1)
    row = plan_row(request, request.sequences[0], 2)
    assert (row.prompt_logprobs, row.next_prompt_token_id) == (1, 7)
    assert plan_row(request, request.sequences[0], 4).next_prompt_token_id is None


def test_decoding_is_having_exactly_the_last_drawn_token_to_compute() -> None:
    request = make()
    sequence = request.sequences[0]
    sequence.num_computed_tokens = 3
    assert not is_decoding(request), "the last token of a prompt is not a drawn one"
    sequence.num_computed_tokens = 4
    sequence.output_token_ids.append(9)
    assert is_decoding(request)
    sequence.output_token_ids.append(9)
    assert not is_decoding(request)
