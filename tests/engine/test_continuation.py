"""What a drawn token does to a sequence, and what of it is told."""

from __future__ import annotations

from typing import Any

import pytest

from engine.api import Output, SamplingParams, TokenLogprob
from engine.continuation import continue_sequence, ending_output, notice_output, ranked_outputs, take_up
from engine.plan import Drawn
from engine.request import Request, TokenFacts

WORDS = (b"", b"ABC", b"DEF", b"GH", b"I", b"J", b"\xf0\x9f", b"\x8c\xb6", b"\n\n")
END = 0


def make(max_tokens: int = 10, **params: Any) -> Request:
    facts = TokenFacts(WORDS, frozenset({END}))
    return Request("r", [1], SamplingParams(seed=0, **params), facts, max_tokens=max_tokens)


def drawn(token_id: int, logprob: float = -1.0) -> Drawn:
    return Drawn(TokenLogprob(token_id, logprob))


def run(request: Request, *token_ids: int) -> list[Output]:
    sequence = request.sequences[0]
    outputs: list[Output] = []
    for token_id in token_ids:
        if sequence.finish_reason is None:
            outputs += continue_sequence(request, sequence, drawn(token_id))
    return outputs


def test_text_and_tokens_are_told_and_the_end_of_sequence_adds_no_text() -> None:
    outputs = run(make(), 1, 2, END, 3)
    assert [output.text for output in outputs] == ["ABC", "DEF", ""]
    assert [output.finish_reason for output in outputs] == [None, None, "stop"]
    assert outputs[-1].stop_reason is None
    assert outputs[-1].usage.completion_tokens == 3


def test_a_stop_string_over_several_tokens_is_never_told() -> None:
    outputs = run(make(stop=("DEFGHIJ",)), 1, 2, 3, 4, 5)
    assert "".join(output.text for output in outputs) == "ABC"
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == ("stop", "DEFGHIJ")


def test_what_is_held_back_comes_when_the_sequence_ends_otherwise() -> None:
    outputs = run(make(max_tokens=2, stop=("DEFX",)), 1, 2)
    assert "".join(output.text for output in outputs) == "ABCDEF"
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason) == ("length", None)


def test_half_a_character_at_the_limit_ends_well() -> None:
    outputs = run(make(max_tokens=2), 1, 6)
    assert "".join(output.text for output in outputs) == "ABC\ufffd"
    assert outputs[-1].finish_reason == "length"


def test_a_stop_string_inside_the_last_token_wins_over_the_limit() -> None:
    outputs = run(make(max_tokens=2, stop=("\n",)), 1, 8)
    assert (outputs[-1].text, outputs[-1].finish_reason) == ("", "stop")


def test_nothing_ends_a_sequence_before_min_tokens() -> None:
    outputs = run(make(min_tokens=3, stop=("ABC",)), 1, 1, 1, 1)
    assert [output.finish_reason for output in outputs] == [None, None, "stop"]


def test_stop_tokens_are_named_and_end_of_sequence_can_be_ignored() -> None:
    outputs = run(make(stop_token_ids=(3,), ignore_eos=True), 1, END, 3)
    assert (outputs[-1].finish_reason, outputs[-1].stop_reason, outputs[-1].text) == ("stop", 3, "")
    assert [output.finish_reason for output in outputs[:-1]] == [None, None]


def test_only_the_best_of_several_are_told_and_only_at_the_end() -> None:
    request = make(n=1, best_of=2)
    request.expand()
    worse, better = request.sequences
    for sequence, logprob in ((worse, -2.0), (better, -0.5)):
        assert continue_sequence(request, sequence, drawn(1, logprob)) == []
        assert continue_sequence(request, sequence, drawn(END, logprob)) == []
    request.finished_sequences = [worse, better]
    (told,) = ranked_outputs(request)
    assert (told.index, told.text, told.token_ids, told.finish_reason) == (0, "ABC", (1, END), "stop")
    assert told.usage.completion_tokens == 4


def test_a_notice_has_no_tokens() -> None:
    notice = notice_output(make(), "preempted")
    assert (notice.notice, notice.token_ids, notice.text) == ("preempted", (), "")


@pytest.mark.parametrize(
    ("params", "token_ids"),
    [
        ({}, (1, 2, END)),
        ({"stop": ("DEFGHIJ",)}, (1, 2, 3, 4, 5)),
        ({"stop": ("DEFX",), "max_tokens": 3}, (1, 2, 2)),
        ({"stop": ("DEF",), "min_tokens": 3}, (1, 2, 2, 2)),
        ({"max_tokens": 3}, (1, 6, 7)),
    ],
    ids=str,
)
def test_an_answer_taken_up_anywhere_goes_on_as_if_nothing_had_been(
    params: dict[str, Any], token_ids: tuple[int, ...]
) -> None:
    whole = run(make(**params), *token_ids)
    for num_told in range(len(whole) + 1):
        request = make(**params)
        take_up(request, token_ids[:num_told])
        rest = run(request, *token_ids[num_told:])
        assert rest == whole[num_told:]
        last = ending_output(request)
        assert (last.finish_reason, last.stop_reason, last.usage) == (
            whole[-1].finish_reason,
            whole[-1].stop_reason,
            whole[-1].usage,
        )
