"""Bytes of tokens against the tokenizer's own decoder."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import CanineTokenizer, PreTrainedTokenizerFast

from engine.errors import ModelLoadError
from engine.loading.sources import find_model
from engine.vocabulary import read_vocabulary
from tests.engine.tiny_tokenizers import byte_tokenizer, sentencepiece_tokenizer

TEXTS = (
    "The quick brown fox.",
    "  two  spaces, a tab\tand\n\nlines \r\n",
    "🌶 👨‍👩‍👧‍👦 ďábelské ไทย 你好 한국어 العربية",
    "e\u0301 \u200b\u00a0\ufffd \x00\x7f",
    "def f(x):\n    return x < 3 or x > 4  # 12345 67.89",
)


@pytest.fixture(scope="module")
def smollm2() -> Any:
    files = find_model("smollm2")
    assert files.gguf is not None
    return PreTrainedTokenizerFast.from_pretrained(files.folder, gguf_file=files.gguf.name, local_files_only=True)


def joined(vocabulary: Any, token_ids: list[int]) -> str:
    return b"".join(vocabulary[token_id] for token_id in token_ids).decode("utf-8", errors="replace")


def decoded(tokenizer: Any, token_ids: list[int]) -> str:
    return tokenizer.decode(token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)


def test_texts_come_back_from_their_tokens(smollm2: Any) -> None:
    vocabulary = read_vocabulary(smollm2, 49152)
    for text in TEXTS:
        token_ids = smollm2.encode(text, add_special_tokens=False)
        assert joined(vocabulary, token_ids) == text


def test_any_ids_read_as_the_tokenizer_decodes_them(smollm2: Any) -> None:
    """Half characters, control tokens and real U+FFFD included."""
    vocabulary = read_vocabulary(smollm2, 49152)
    rng = random.Random(3)
    cases = [rng.choices(range(49152), k=20) for _ in range(300)]
    cases += [rng.choices(range(400), k=20) for _ in range(300)]
    cases += [[10813, 230, 2899], [10813, 230], [24211], [6004, 2, 198, 1, 9690]]
    for token_ids in cases:
        assert joined(vocabulary, token_ids) == decoded(smollm2, token_ids)


def test_special_tokens_and_unused_ids_add_nothing() -> None:
    vocabulary = read_vocabulary(byte_tokenizer(), 300)
    assert len(vocabulary) == 300
    assert vocabulary[:3] == (b"", b"", b"")
    assert vocabulary[3] == b"\x00"
    assert vocabulary[258] == b"\xff"
    assert vocabulary[259] == b""


def test_added_tokens_that_are_not_special_are_text() -> None:
    tokenizer = byte_tokenizer(added=[AddedToken("<think>"), AddedToken("    ")])
    vocabulary = read_vocabulary(tokenizer, len(tokenizer))
    assert vocabulary[-2:] == (b"<think>", b"    ")


def test_sentencepiece_reads_as_its_decoder_but_keeps_the_first_space() -> None:
    tokenizer = sentencepiece_tokenizer()
    vocabulary = read_vocabulary(tokenizer, len(tokenizer))
    for text in (*TEXTS, "the theme", "no é here"):
        token_ids = tokenizer.encode(text, add_special_tokens=False)
        assert joined(vocabulary, token_ids).removeprefix(" ") == decoded(tokenizer, token_ids)
    assert joined(vocabulary, [tokenizer.convert_tokens_to_ids("▁the")]) == " the"


def test_tokenizers_in_plain_python_are_refused_by_name() -> None:
    with pytest.raises(ModelLoadError, match="CanineTokenizer"):
        read_vocabulary(CanineTokenizer(), 3)


def test_other_decoders_are_refused_by_name() -> None:
    backend = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    with pytest.raises(ModelLoadError, match="WordPiece"):
        read_vocabulary(tokenizer, 3)
