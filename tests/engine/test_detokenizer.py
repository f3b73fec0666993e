"""Streamed pieces of text against the decoding of the whole."""

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.detokenizer import Detokenizer
from tests.engine.real_model import loaded

# Some of SmolLM2's vocabulary, by the real ids.
SMOLLM2 = {
    2: b"",  # <|im_end|>
    10813: b"\xf0\x9f",
    230: b"\x8c",
    131: b"\xb6",
    143: b"\xc4",
    233: b"\x8f",
    5415: "á".encode(),
    2899: b" leading",
    24211: "\ufffd".encode(),
    1116: b"\n\n",
    198: b"\n",
}


def stream(pieces, stop=(), num_unstoppable=0):
    """What each push and the final finish() return, for a vocabulary of the given pieces pushed one after another."""
    detokenizer = Detokenizer([p.encode() if isinstance(p, str) else p for p in pieces], stop)
    deltas = [detokenizer.push(i, may_stop=i >= num_unstoppable) for i in range(len(pieces))]
    return [*deltas, detokenizer.finish()], detokenizer.matched_stop


def cut_at_first_stop(text, stop):
    """By definition: the first place where the text so far ends with a stop string; the longest one counts."""
    for end in range(len(text) + 1):
        for candidate in sorted(stop, key=len, reverse=True):
            if text[:end].endswith(candidate):
                return text[: end - len(candidate)], candidate
    return text, None


class TestCharacters:
    def test_a_character_split_over_tokens_comes_whole(self):
        detokenizer = Detokenizer(SMOLLM2)
        deltas = [detokenizer.push(t) for t in [10813, 230, 131, 143, 233, 5415, 24211]]
        assert deltas == ["", "", "🌶", "", "ď", "á", "\ufffd"]
        assert detokenizer.finish() == ""

    def test_a_broken_character_becomes_one_replacement_when_it_cannot_be_completed(self):
        detokenizer = Detokenizer(SMOLLM2)
        assert [detokenizer.push(t) for t in [10813, 230, 2899]] == ["", "", "\ufffd leading"]

    def test_the_end_in_the_middle_of_a_character_is_no_error(self):
        detokenizer = Detokenizer(SMOLLM2)
        assert [detokenizer.push(t) for t in [10813, 230]] == ["", ""]
        assert detokenizer.finish() == "\ufffd"
        assert detokenizer.finish() == ""

    def test_control_tokens_add_nothing(self):
        detokenizer = Detokenizer(SMOLLM2)
        assert [detokenizer.push(t) for t in [10813, 2, 230, 131, 2]] == ["", "", "", "🌶", ""]

    @pytest.mark.parametrize("text", ["👨‍👩‍👧‍👦", "👍🏽", "ďábelské", "ไทย", "你好", "한국어", "مرحبا"])
    def test_byte_by_byte(self, text):
        deltas, _ = stream([bytes([b]) for b in text.encode()])
        assert "".join(deltas) == text
        assert all(len(delta) <= 1 for delta in deltas)

    @given(st.lists(st.one_of(st.binary(max_size=4), st.text(max_size=3).map(str.encode))))
    def test_pieces_together_are_the_whole_decoding(self, pieces):
        deltas, _ = stream(pieces)
        assert "".join(deltas) == b"".join(pieces).decode(errors="replace")

    @given(st.text(), st.randoms())
    def test_valid_text_is_never_replaced_and_never_late(self, text, random):
        data = text.encode()
        cuts = sorted(random.choices(range(len(data) + 1), k=5))
        pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        deltas, _ = stream(pieces)
        for i in range(len(pieces)):
            so_far = b"".join(pieces[: i + 1])
            assert "".join(deltas[: i + 1]) == so_far.decode(errors="ignore")

    @given(st.lists(st.one_of(st.integers(0, 49151), st.sampled_from(sorted(SMOLLM2))), max_size=40))
    def test_any_ids_of_the_demo_model_read_as_its_tokenizer_decodes_them(self, token_ids):
        tokenizer = loaded().tokenizer
        detokenizer = Detokenizer(tokenizer.vocabulary)
        told = [detokenizer.push(token_id) for token_id in token_ids]
        assert "".join(told) + detokenizer.finish() == tokenizer.decode(token_ids)

    @pytest.mark.parametrize("text", ["👍🏽 👨‍👩‍👧‍👦 ďábelské ไทย", "你好 한국어 🌶", "مرحبا \ufffd"])
    def test_texts_come_back_from_the_demo_model_s_tokens(self, text):
        tokenizer = loaded().tokenizer
        detokenizer = Detokenizer(tokenizer.vocabulary)
        told = [detokenizer.push(token_id) for token_id in tokenizer.encode(text)]
        assert "".join(told) == text
        assert sum(delta.count("\ufffd") for delta in told) == text.count("\ufffd")


class TestStopStrings:
    def test_nothing_of_a_stop_string_is_told(self):
        deltas, matched = stream(["ABC", "DEF", "GH", "I", "J", "K"], stop=("DEFGHIJ",))
        assert deltas == ["ABC", "", "", "", "", "", ""]
        assert matched == "DEFGHIJ"

    def test_text_held_back_comes_once_it_cannot_become_a_stop_string(self):
        deltas, matched = stream(["ABC", "DEF", "GH", "I", "J"], stop=("DEFGX",))
        assert deltas == ["ABC", "", "DEFGH", "I", "J", ""]
        assert matched is None

    def test_text_held_back_comes_at_the_end(self):
        deltas, _ = stream(["ABC", "DEF"], stop=("DEFG",))
        assert deltas == ["ABC", "", "DEF"]

    def test_a_token_that_runs_past_the_stop_string_is_cut(self):
        detokenizer = Detokenizer(SMOLLM2, ("\n",))
        assert [detokenizer.push(t) for t in [5415, 1116, 5415]] == ["á", "", ""]
        assert detokenizer.finish() == ""
        assert detokenizer.matched_stop == "\n"

    def test_the_earliest_in_the_text_wins_not_the_first_in_the_list(self):
        deltas, matched = stream(["one two three"], stop=("three", "two"))
        assert (deltas, matched) == (["one ", ""], "two")

    def test_of_two_that_end_together_the_longer_wins(self):
        deltas, matched = stream(["x", "ab"], stop=("b", "ab"))
        assert (deltas, matched) == (["x", "", ""], "ab")

    def test_a_part_that_fails_may_contain_the_beginning_of_another(self):
        deltas, matched = stream(list("aabaabaac"), stop=("aabaac",))
        assert ("".join(deltas), matched) == ("aab", "aabaac")

    def test_a_stop_string_inside_a_character_split_over_tokens(self):
        deltas, matched = stream([b"a\xf0\x9f", b"\x8c\xb6", b"b"], stop=("🌶",))
        assert (deltas, matched) == (["a", "", "", ""], "🌶")

    def test_text_before_min_tokens_is_no_part_of_a_stop_string(self):
        deltas, matched = stream(["stop", "st", "op", "stop"], stop=("stop",), num_unstoppable=2)
        assert (deltas, matched) == (["stop", "st", "op", "", ""], "stop")

    def test_long_repetitive_stop_strings_are_found(self):
        stop = ("a" * 1000 + "b", "a" * 1023 + "c")
        deltas, matched = stream(["a" * 7] * 300 + ["c"], stop=stop)
        assert (len("".join(deltas)), matched) == (2100 - 1023, stop[1])

    @given(
        st.lists(st.one_of(st.text("ab🌶", max_size=3).map(str.encode), st.sampled_from([b"\xf0\x9f", b"\x8c\xb6"]))),
        st.lists(st.text("ab🌶\ufffd", min_size=1, max_size=4), max_size=4),
        st.integers(0, 4),
    )
    def test_pieces_together_are_the_whole_text_cut_at_the_first_stop(self, pieces, stop, num_unstoppable):
        deltas, matched = stream(pieces, stop, num_unstoppable)
        whole = b"".join(pieces).decode(errors="replace")
        unstoppable = codecs.getincrementaldecoder("utf-8")(errors="replace").decode(b"".join(pieces[:num_unstoppable]))
        tail, expected_stop = cut_at_first_stop(whole.removeprefix(unstoppable), stop)
        assert ("".join(deltas), matched) == (unstoppable + tail, expected_stop)

    @given(st.lists(st.text("abc", max_size=3)), st.lists(st.text("abc", min_size=1, max_size=4), min_size=1))
    def test_no_more_is_held_than_the_beginning_of_a_stop_string(self, pieces, stop):
        detokenizer = Detokenizer([p.encode() for p in pieces], stop)
        told = ""
        for i in range(len(pieces)):
            told += detokenizer.push(i)
            held = "".join(pieces[: i + 1]).removeprefix(told)
            if detokenizer.matched_stop is None:
                assert held == "" or any(s.startswith(held) for s in stop)


class TestFork:
    def test_a_fork_goes_on_from_the_middle_of_a_character_and_of_a_stop_string(self):
        detokenizer = Detokenizer([b"sto", b"p", b"w", b"\xf0\x9f", b"\x8c\xb6", b"\x8c\xb8"], ("stop",))
        detokenizer.push(3)
        fork = detokenizer.fork()
        assert (detokenizer.push(4), fork.push(5)) == ("🌶", "🌸")
        detokenizer.push(0)
        fork = detokenizer.fork()
        assert (detokenizer.push(1), fork.push(2)) == ("", "stow")
        assert (detokenizer.matched_stop, fork.matched_stop) == ("stop", None)
        assert detokenizer.fork().push(2) == ""
