"""Token id -> the bytes it adds to the text, read off a tokenizer's own decoder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from engine.errors import ModelLoadError

BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
SPACE_MARK = "▁"


def read_vocabulary(tokenizer: Any, size: int) -> Sequence[bytes]:
    """The bytes of each of ``size`` ids; b"" for special tokens and for ids that no token has.

    Joined and decoded they are the text of any run of ids, except that SentencePiece's own decoder drops one space at
    the beginning of a text: a continuation of a prompt keeps it here.

    Args:
        tokenizer: of transformers.

    Raises:
        ModelLoadError: it is not backed by the ``tokenizers`` library, or its decoder does more than spell tokens one
            after the other.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelLoadError(f"the tokenizer {type(tokenizer).__name__} is not backed by the tokenizers library")
    spell = _speller(json.loads(backend.decoder.__getstate__()) if backend.decoder else None)
    added = tokenizer.added_tokens_decoder
    vocabulary = [b""] * max(size, len(tokenizer))
    for token, token_id in backend.get_vocab(with_added_tokens=True).items():
        if token_id not in added:
            vocabulary[token_id] = spell(token)
        elif not added[token_id].special:
            vocabulary[token_id] = token.encode("utf-8")
    return tuple(vocabulary)


def _speller(decoder: dict[str, Any] | None) -> Callable[[str], bytes]:
    kinds = _decoder_kinds(decoder)
    if kinds == {"ByteLevel"}:
        return _spell_byte_level
    if kinds and kinds <= {"Metaspace", "Replace", "ByteFallback", "Fuse", "Strip"}:
        return _spell_sentencepiece
    raise ModelLoadError(
        f"the tokenizer's decoder ({', '.join(sorted(kinds)) or 'none'}) is not supported; supported are ByteLevel and "
        "SentencePiece's (spaces as ▁, byte fallback)"
    )


def _decoder_kinds(decoder: dict[str, Any] | None) -> set[str]:
    if decoder is None:
        return set()
    if decoder["type"] == "Sequence":
        return {kind for part in decoder["decoders"] for kind in _decoder_kinds(part)}
    return {decoder["type"]}


def _byte_characters() -> dict[str, int]:
    """The printable character that stands for each byte in a byte-level vocabulary (GPT-2, Radford et al., 2019).

    Printable Latin-1 characters stand for themselves; the other bytes, in order, for the characters from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


BYTE_CHARACTERS = _byte_characters()


def _spell_byte_level(token: str) -> bytes:
    try:
        return bytes([BYTE_CHARACTERS[character] for character in token])
    except KeyError:
        return token.encode("utf-8")


def _spell_sentencepiece(token: str) -> bytes:
    if byte := BYTE_TOKEN.fullmatch(token):
        return bytes([int(byte[1], 16)])
    return token.replace(SPACE_MARK, " ").encode("utf-8")
