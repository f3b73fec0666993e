"""Text to token ids and back, with the model's own tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.api import ChatMessage
from engine.chat_template import ChatTemplate
from engine.control_tokens import ControlTokens
from engine.errors import ConfigError, InvalidRequest
from engine.vocabulary import read_vocabulary


class Tokenizer:
    """Wraps a tokenizer of transformers. All methods may be called from several threads at once.

    Attributes:
        vocabulary: token id -> the bytes it adds to the text; b"" for special tokens.
    """

    def __init__(self, tokenizer: Any, vocab_size: int, chat_template: str | None = None) -> None:
        """
        Args:
            tokenizer: of transformers, backed by the ``tokenizers`` library.
            vocab_size: of the model, which may be more than the tokenizer has.
            chat_template: Jinja text in place of the tokenizer's own.

        Raises:
            ModelLoadError: of a kind that we cannot read the vocabulary of.
            ConfigError: the chat template is no Jinja.
        """
        source = chat_template or _own_template(tokenizer)
        self.vocabulary: Sequence[bytes] = read_vocabulary(tokenizer, vocab_size)
        self._control = ControlTokens(tokenizer, source)
        self._chat = None if source is None else ChatTemplate(tokenizer, source, self._control)
        self._opening_ids = _opening_ids(tokenizer)

    def encode(self, text: str) -> list[int]:
        """Tokens of the text alone: none of them a control token, whatever the text says.

        Raises:
            InvalidRequest: the text holds a lone surrogate.
        """
        self._control.check("prompt", text)
        return self._control.encode(text)

    def encode_prompt(self, text: str) -> list[int]:
        """As ``encode``, after the tokens that the model expects at the beginning of every text (as a rule BOS)."""
        return [*self._opening_ids, *self.encode(text)]

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of the ids; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(self.vocabulary[token_id] for token_id in token_ids).decode("utf-8", errors="replace")

    def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Token ids of a conversation and of the opening of the next answer.

        Raises:
            InvalidRequest: the model has no chat template, or its template refuses the messages.
        """
        if self._chat is None:
            raise InvalidRequest(
                "messages",
                "the model has no chat template; start the server with the setting chat_template to give one",
            )
        return self._chat.encode(messages)


def read_template(setting: str | None) -> str | None:
    """The Jinja text of the ``chat_template`` setting: itself, or what the file it names holds.

    Raises:
        ConfigError: it looks like a path, and there is no such file.
    """
    if setting is None or "{" in setting:
        return setting
    path = Path(setting).expanduser()
    if not path.is_file():
        raise ConfigError(f"chat_template must be Jinja text or a file that holds it; there is no file {setting}")
    return path.read_text("utf-8")


def _own_template(tokenizer: Any) -> str | None:
    """The tokenizer's template; the one called "default" where it has several."""
    template: str | dict[str, str] | None = tokenizer.chat_template
    return template.get("default") if isinstance(template, dict) else template


def _opening_ids(tokenizer: Any) -> tuple[int, ...]:
    """What the tokenizer puts before a text."""
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    starts = (start for start in range(len(whole)) if whole[start : start + len(plain)] == plain)
    return tuple(whole[: next(starts, 0)])
