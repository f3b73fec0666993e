"""What could never run to its end is refused at once, with the field and the limit."""

from __future__ import annotations

import pytest

from engine.admission import AdmissionLimits
from engine.api import SamplingParams
from engine.config import EngineConfig
from engine.errors import InvalidRequest


def limits(num_blocks: int = 100, max_model_len: int = 256) -> AdmissionLimits:
    return AdmissionLimits(EngineConfig(max_num_seqs=4), num_blocks, max_model_len)


def refused(num_prompt_tokens: int, params: SamplingParams, on: AdmissionLimits) -> InvalidRequest:
    with pytest.raises(InvalidRequest) as caught:
        on.max_tokens(num_prompt_tokens, params)
    return caught.value


def test_unset_max_tokens_takes_what_is_left() -> None:
    assert limits().max_tokens(200, SamplingParams()) == 56
    assert limits().max_tokens(255, SamplingParams()) == 1


def test_a_prompt_must_leave_room_for_an_answer() -> None:
    error = refused(256, SamplingParams(), limits())
    assert (error.field, error.code) == ("prompt", "context_length_exceeded")
    assert "255" in str(error)
    assert refused(0, SamplingParams(), limits()).field == "prompt"


def test_too_many_tokens_are_refused_with_what_would_fit() -> None:
    error = refused(200, SamplingParams(max_tokens=57), limits())
    assert error.field == "max_tokens"
    assert "56" in str(error)


def test_more_sequences_than_run_at_once() -> None:
    assert refused(10, SamplingParams(n=5), limits()).field == "n"


def test_what_the_blocks_cannot_hold_even_alone() -> None:
    small = limits(num_blocks=4)  # 64 tokens
    assert small.max_tokens(60, SamplingParams()) == 5, "the last drawn token needs no slot"
    assert refused(65, SamplingParams(max_tokens=1), small).field == "prompt"
    assert refused(60, SamplingParams(max_tokens=6), small).field == "max_tokens"


@pytest.mark.parametrize(("n", "longest"), [(1, 33), (2, 17), (3, 1)])
def test_sequences_share_only_full_blocks_of_the_prompt(n: int, longest: int) -> None:
    small = limits(num_blocks=4)
    # 32 prompt tokens fill two blocks for all; two more blocks are left for the answers.
    assert small.max_tokens(32, SamplingParams(n=n)) == longest
    assert refused(32, SamplingParams(n=n, max_tokens=longest + 1), small).field == "max_tokens"
