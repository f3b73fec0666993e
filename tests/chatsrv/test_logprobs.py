"""Log-probabilities on the wire: tokens as text and as exact bytes."""

from __future__ import annotations

from chatsrv.logprobs import LogprobRenderer
from engine import PositionLogprobs, TokenLogprob

VOCABULARY = (b"", b"Paris", " é".encode(), b"\xf0\x9f")


def test_each_position_tells_the_drawn_token_and_the_likeliest_ones() -> None:
    position = PositionLogprobs(TokenLogprob(1, -0.25), (TokenLogprob(1, -0.25), TokenLogprob(2, -2.5)))
    (rendered,) = LogprobRenderer(VOCABULARY).render([position])
    assert (rendered.token, rendered.logprob, rendered.bytes) == ("Paris", -0.25, list(b"Paris"))
    assert [(top.token, top.logprob) for top in rendered.top_logprobs] == [("Paris", -0.25), (" é", -2.5)]
    assert rendered.top_logprobs[1].bytes == list(" é".encode())


def test_half_a_character_shows_as_a_replacement_but_keeps_its_bytes() -> None:
    (rendered,) = LogprobRenderer(VOCABULARY).render([PositionLogprobs(TokenLogprob(3, -1.0), ())])
    assert rendered.token == "\N{REPLACEMENT CHARACTER}"
    assert bytes(rendered.bytes) == b"\xf0\x9f"
    assert rendered.top_logprobs == []


def test_control_tokens_add_no_text() -> None:
    assert LogprobRenderer(VOCABULARY).text(0) == ""
