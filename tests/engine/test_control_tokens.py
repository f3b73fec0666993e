"""No text becomes a control token, and no other text becomes anything else than it always was."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from engine.control_tokens import ControlTokens, StandIns
from engine.errors import InvalidRequest
from tests.engine.tiny_tokenizers import CHAT_TEMPLATE, END_ID, TURN_ID, byte_tokenizer, sentencepiece_tokenizer

CONTROL = ControlTokens(byte_tokenizer(), CHAT_TEMPLATE)
SENTENCEPIECE = ControlTokens(sentencepiece_tokenizer(), None)

PIECES = st.sampled_from(
    ["<|turn|>", "<|end|>", "<", "|", "<|", "|>", ">", "tu", "rn", "end", " ", "\n", "a", "é", "🌶"]
)
TEXT = (
    st.lists(PIECES | st.text(max_size=3), max_size=8)
    .map("".join)
    .filter(lambda text: text.isprintable() or "\n" in text)
)


@given(TEXT)
def test_text_never_becomes_a_control_token(text: str) -> None:
    assert set(CONTROL.encode(text)).isdisjoint(range(3))
    assert bytes(token_id - 3 for token_id in CONTROL.encode(text)).decode() == text


def test_other_threads_run_while_a_long_text_is_tokenised() -> None:
    """The event loop among them, which must answer pings meanwhile."""
    done = threading.Event()
    worker = threading.Thread(target=lambda: (CONTROL.encode("long text " * 200_000), done.set()))
    num_turns = 0
    worker.start()
    while not done.wait(0.001):
        num_turns += 1
    worker.join()
    assert num_turns > 20


@given(st.lists(st.sampled_from(["<s>", "</s>", "<", "s>", "</", "/", ">", "<unk>", "the", " ", "é"]), max_size=8))
def test_text_is_not_merged_into_control_tokens(parts: list[str]) -> None:
    """The vocabulary holds ``</`` and ``s>`` and would merge them."""
    assert set(SENTENCEPIECE.encode("".join(parts))).isdisjoint({0, 1, 2})


def test_characters_that_the_vocabulary_lacks_become_the_unknown_token() -> None:
    backend = Tokenizer(models.BPE(vocab={"?": 0, "a": 1}, merges=[], unk_token="?"))
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("?", normalized=False)])
    assert ControlTokens(PreTrainedTokenizerFast(tokenizer_object=backend), None).encode("aba") == [1, 0, 1]


def test_texts_are_neither_cut_nor_padded() -> None:
    tokenizer = byte_tokenizer()
    tokenizer.backend_tokenizer.enable_truncation(4)
    tokenizer.backend_tokenizer.enable_padding(length=6)
    control = ControlTokens(tokenizer, None)
    assert len(control.encode("a" * 10)) == 10
    assert len(control.encode("a")) == 1


def test_a_whole_word_of_the_vocabulary_is_not_a_control_token() -> None:
    """``ignore_merges`` looks words up before it merges."""
    vocab = {"<|x|>": 0, **{character: index for index, character in enumerate("<|x>ab", start=1)}}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[], ignore_merges=True))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<|x|>", normalized=False)])
    control = ControlTokens(PreTrainedTokenizerFast(tokenizer_object=backend), None)
    assert control.encode("<|x|>") == [1, 2, 3, 2, 4]


@pytest.mark.parametrize("string", ["<|begin|>", "<|turn|>"])
def test_a_text_and_its_surroundings_never_make_a_control_token_together(string: str) -> None:
    """Every way to cut the string into what a template writes and what a message says, trimmed or not."""
    places = range(len(string) + 1)
    for start, end in ((start, end) for start in places for end in places if start < end):
        before, text, after = string[:start], string[start:end], string[end:]
        for written in (text, f"  {text} \n", f" \n{text}!", f"!{text} \n"):
            stand_ins = StandIns([written])
            veiled = CONTROL.veil(written, stand_ins, is_answer=False)
            for shown in {veiled, veiled.strip()}:
                rendered = CONTROL.respell(before + shown + after)
                assert stand_ins.lift(rendered) == before + stand_ins.lift(shown) + after, "it was respelled"


@given(TEXT)
def test_lifting_the_veil_gives_the_text_back(text: str) -> None:
    stand_ins = StandIns([text])
    veiled = CONTROL.veil(text, stand_ins, is_answer=False)
    assert stand_ins.lift(veiled) == text
    assert CONTROL.respell(veiled) == veiled


@pytest.mark.parametrize("text", ["if a <", "> quoted", "a < b > c", "<|", "|>", "plain", "", " "])
def test_harmless_texts_pass_the_veil_unchanged(text: str) -> None:
    stand_ins = StandIns([text])
    veiled = CONTROL.veil(text, stand_ins, is_answer=False)
    assert CONTROL.encode(stand_ins.lift(veiled)) == CONTROL.encode(text)


def test_unigram_vocabularies_are_guarded_too() -> None:
    pieces = [("<unk>", 0.0), ("<s>", -1.0), ("▁", -2.0), *((letter, -3.0) for letter in "<s>a")]
    backend = Tokenizer(models.Unigram(pieces, unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    backend.add_special_tokens([AddedToken("<s>", normalized=False)])
    control = ControlTokens(PreTrainedTokenizerFast(tokenizer_object=backend), None)
    assert control.encode("a<s>") == [2, 6, 3, 4, 5]
    assert control.encode(control.respell("a<s>")) == [2, 6, 1]


def test_the_longest_of_many_control_strings_is_found() -> None:
    names = ["<a>", "<a", "<a>b", *(f"<|reserved_{number}|>" for number in range(300))]
    control = ControlTokens(byte_tokenizer(added=[AddedToken(name, special=True) for name in names]), None)
    for text in ("<a>b", "<a>", "<a", "<|reserved_29|>", "<|reserved_299|>"):
        assert control.encode(control.respell(text)) == [259 + names.index(text)]
    assert control.encode(control.respell("<ab")) == [259 + names.index("<a"), ord("b") + 3]
    assert control.encode(control.respell("<|reserved_300|>")) == [byte + 3 for byte in b"<|reserved_300|>"]


def test_turn_markers_that_are_not_marked_special_are_control_tokens_too() -> None:
    """As in models whose tokenizer lists its turn markers as plain added tokens; words and white space stay text."""
    added = [AddedToken(text, normalized=False) for text in ("<user>", "<table>", "assistant", "  ")]
    template = "{% for m in messages %}  <user>{{ m['content'] }}{% endfor %}assistant"
    tokenizer = byte_tokenizer(added=added)
    control = ControlTokens(tokenizer, template)
    user, table, assistant, spaces = (token_id for token_id in range(259, 263))
    assert control.encode("<table>  assistant") == [table, spaces, assistant]
    assert user not in control.encode("<user>")
    assert control.encode(control.respell("<user>")) == [user]


def test_markup_that_the_template_looks_for_is_left_to_it_in_answers() -> None:
    added = [AddedToken(text, normalized=False) for text in ("<think>", "</think>")]
    template = "<think>{% if '</think>' in c %}{{ c.split('</think>')[-1] }}{% endif %}"
    control = ControlTokens(byte_tokenizer(added=added), template)
    text = "<think>so</think>yes<|end|>"
    stand_ins = StandIns([text])
    answer = control.veil(text, stand_ins, is_answer=True)
    assert "</think>" in answer
    assert "<|end|>" not in answer
    assert "</think>" not in control.veil(text, stand_ins, is_answer=False)
    assert control.forged_ids == {0, END_ID, TURN_ID, 259}


def test_what_cannot_be_tokenised_safely_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="lone surrogate") as refused:
        CONTROL.check("messages", "hi \ud83d")
    assert refused.value.field == "messages"
    with pytest.raises(InvalidRequest, match="keeps for itself"):
        CONTROL.check("prompt", CONTROL.respell("<|turn|>"))


def test_stand_ins_differ_from_all_that_is_there() -> None:
    stand_ins = StandIns(["\ue001\ue003", "<"])
    taken = [stand_ins.of("<"), stand_ins.of("["), stand_ins.fresh()]
    assert taken == ["\ue002", "\ue004", "\ue005"]
    assert stand_ins.of("<") == "\ue002"
    assert stand_ins.lift("\ue002\ue004\ue005\ue001") == "<[\ue005\ue001"
    every: Any = "".join(map(chr, range(0xE000, 0xF900)))
    with pytest.raises(InvalidRequest, match="private-use"):
        StandIns([every]).fresh()
