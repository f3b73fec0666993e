"""A sequence's tokens across prompt and output, and what of a request may be computed when."""

from __future__ import annotations

from engine.api import SamplingParams
from engine.request import Request, TokenFacts

FACTS = TokenFacts([b""] * 100, frozenset({2}))


def make(n: int = 1, **params: object) -> Request:
    return Request("r", [1, 2, 3, 4], SamplingParams(n=n, seed=0, **params), FACTS, max_tokens=9)  # type: ignore[arg-type]


def test_token_ids_run_from_the_prompt_into_the_output() -> None:
    sequence = make().sequences[0]
    sequence.output_token_ids += [5, 6, 7]
    assert sequence.num_tokens == 7
    assert sequence.token_ids(0, 4) == [1, 2, 3, 4]
    assert sequence.token_ids(2, 6) == [3, 4, 5, 6]
    assert sequence.token_ids(5, 7) == [6, 7]


def test_one_sequence_computes_the_prompt_for_all() -> None:
    request = make(n=3)
    leader = request.sequences[0]
    assert (request.num_sequences, request.is_sharing_prompt) == (3, True)
    assert request.computing_sequences() == [leader]
    leader.output_token_ids.append(9)  # as after recomputation: it knows more than the prompt
    assert request.num_computable_tokens(leader) == 4
    request.expand()
    request.is_forked = True
    assert [sequence.index for sequence in request.computing_sequences()] == [0, 1, 2]
    assert request.num_computable_tokens(leader) == 5


def test_what_ends_a_sequence() -> None:
    assert make(stop_token_ids=(7,)).stop_token_ids == {2, 7}
    assert make(stop_token_ids=(7,), ignore_eos=True).stop_token_ids == {7}


def test_rank_is_class_then_those_that_ran_then_arrival() -> None:
    requests = [make() for _ in range(4)]
    for request, (level, was_admitted, arrival) in zip(
        requests, [(1, False, 0), (0, False, 3), (1, True, 2), (1, False, 1)], strict=True
    ):
        request.level, request.was_admitted, request.arrival = level, was_admitted, arrival
    assert [r.arrival for r in sorted(requests, key=lambda r: r.rank)] == [3, 2, 0, 1]


def test_block_keys_grow_with_the_tokens_and_never_change() -> None:
    request = make()
    sequence = request.sequences[0]
    first = request.block_keys(sequence, 2, 2)
    sequence.output_token_ids += [5, 6]
    assert request.block_keys(sequence, 2, 3)[:2] == first
    assert len({*request.block_keys(sequence, 2, 3)}) == 3
