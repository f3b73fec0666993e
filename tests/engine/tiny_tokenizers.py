"""Tokenizers of both kinds that we read, small enough to build in a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from engine.vocabulary import BYTE_CHARACTERS

SPECIAL_TOKENS = ("<|begin|>", "<|end|>", "<|turn|>")
BEGIN_ID, END_ID, TURN_ID = range(3)

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|turn|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|end|>\n{% endfor %}{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)


def byte_tokenizer(added: Sequence[AddedToken] = (), **settings: Any) -> PreTrainedTokenizerFast:
    """Byte-level: three special tokens, one token for each byte, and ``added`` ones after them."""
    characters = sorted(BYTE_CHARACTERS, key=BYTE_CHARACTERS.__getitem__)
    vocab = {token: index for index, token in enumerate([*SPECIAL_TOKENS, *characters])}
    backend = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL_TOKENS])
    backend.add_tokens(list(added))
    begin, end, _ = SPECIAL_TOKENS
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=begin, eos_token=end, **settings)


def sentencepiece_tokenizer(**settings: Any) -> PreTrainedTokenizerFast:
    """As converted from SentencePiece: spaces as ▁, one in front of the text, unknown characters as byte tokens."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    pieces += [*"abcdefghijklmnopqrstuvwxyz<>/|_.", "s>", "</", "he", "▁t", "▁th", "▁the"]
    vocab = {piece: index for index, piece in enumerate(pieces)}
    # The last two would make control tokens out of plain text.
    merges = [("h", "e"), ("▁", "t"), ("▁t", "h"), ("▁t", "he"), ("▁th", "e"), ("s", ">"), ("<", "/")]
    merges += [("<", "s>"), ("</", "s>")]
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in ("<unk>", "<s>", "</s>")])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, unk_token="<unk>", bos_token="<s>", eos_token="</s>", **settings
    )
