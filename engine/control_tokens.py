"""Keeping text from becoming control tokens.

A tokenizer takes the string ``<|im_end|>`` for the control token wherever it stands. Ours must take it for one only
where the chat template wrote it. So the tokenizer used here knows each control token by a spelling that nobody can
write, drawn anew in each process; text is tokenised as it is, and the strings that the template wrote are respelled
first. Which ones it wrote is told by a veil: while the template runs, the first character of every control string
inside a message is replaced by a stand-in, a private-use character that the conversation does not contain.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer

from engine.errors import InvalidRequest, ModelLoadError

GUARD = "\ue000"
"""Begins and ends a secret spelling; never a stand-in."""

STAND_INS = range(0xE001, 0xF900)
EXAMINED = r"(?:split|startswith|endswith|replace|find|index|count|partition)\(\s*{0}|{0}\s+(?:not\s+)?in\b"
"""How a template looks for a string in a message: as an argument of a method, or by ``in``."""


class ControlTokens:
    """The control tokens of one tokenizer, and a tokenizer that text cannot reach them in.

    Control tokens are those marked special, and other added tokens that the chat template writes, such as the turn
    markers of models that do not mark them.

    Attributes:
        forged_ids: of the tokens that an earlier answer must not bring into a conversation.
        splice: spelling of a token that stands for ids to be filled in later, ``splice_id``; in no vocabulary.
    """

    def __init__(self, tokenizer: Any, template: str | None) -> None:
        """``tokenizer`` is one of transformers, backed by the ``tokenizers`` library."""
        control = {
            token.content: (token_id, token.special)
            for token_id, token in tokenizer.added_tokens_decoder.items()
            if token.special or _is_written(token.content, template)
        }
        # Markup such as </think> that the template itself looks for in an answer is left for it to find.
        forged = {text for text, (_, special) in control.items() if special or not _is_examined(text, template)}
        self._ids = {text: token_id for text, (token_id, _) in control.items()}
        self.forged_ids = frozenset(self._ids[text] for text in forged)
        self._strings = _Strings(self._ids)
        self._answer_strings = _Strings(forged)
        self._nonce = secrets.token_hex(16)
        self.splice = self._spelling("splice")
        self._tokenizer = self._guarded(json.loads(tokenizer.backend_tokenizer.to_str()))
        self.splice_id = self._tokenizer.token_to_id(self.splice)

    def encode(self, text: str) -> list[int]:
        """Tokens of respelled text, or of any text, which is then only text."""
        # As a batch of one: unlike ``encode``, this lets other threads run, which for megabytes takes seconds.
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids

    def check(self, field: str, text: str) -> None:
        """Refuse what cannot be tokenised safely; ``field`` names it in the error."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise InvalidRequest(field, f"{field} holds a lone surrogate, which is no text") from None
        if self._nonce in text:
            raise InvalidRequest(field, f"{field} holds a string that this server keeps for itself")

    def veil(self, text: str, stand_ins: StandIns, *, is_answer: bool) -> str:
        """The text with a stand-in in every control string, also in those that its surroundings might complete."""
        strings = self._answer_strings if is_answer else self._strings
        positions = set(strings.starts_in(text))
        if not positions:
            return text
        return "".join(stand_ins.of(char) if at in positions else char for at, char in enumerate(text))

    def respell(self, rendered: str) -> str:
        """Rendered text with each control string in the spelling that the tokenizer knows."""
        return self._strings.pattern.sub(lambda match: self._spelling(self._ids[match[0]]), rendered)

    def _spelling(self, name: int | str) -> str:
        return f"{GUARD}{self._nonce}:{name}{GUARD}"

    def _guarded(self, state: dict[str, Any]) -> Tokenizer:
        """The serialised tokenizer with its control tokens in their secret spelling."""
        names = {text: self._spelling(token_id) for text, token_id in self._ids.items()}
        _respell_model(state["model"], names)
        state["added_tokens"] = [
            {**token, "content": names.get(token["content"], token["content"])} for token in state["added_tokens"]
        ]
        # Some files carry the length to which their author cut and padded texts.
        state |= {"post_processor": None, "truncation": None, "padding": None}
        guarded = Tokenizer.from_str(json.dumps(state))
        guarded.add_special_tokens([AddedToken(self.splice, normalized=False)])
        for text, name in names.items():
            if guarded.token_to_id(name) != self._ids[text]:
                raise ModelLoadError(f"the tokenizer's control token {text} cannot be kept apart from text")
        return guarded


class StandIns:
    """Private-use characters that stand for others while a template runs."""

    def __init__(self, texts: Sequence[str]) -> None:
        """``texts`` is everything in which a stand-in must not occur."""
        used = {character for text in texts for character in re.findall("[\ue000-\uf8ff]", text)}
        self._free = (character for character in map(chr, STAND_INS) if character not in used)
        self._of: dict[str, str] = {}

    def of(self, character: str) -> str:
        if character not in self._of:
            self._of[character] = self.fresh()
        return self._of[character]

    def fresh(self) -> str:
        character = next(self._free, None)
        if character is None:
            raise InvalidRequest("messages", "messages hold every private-use character there is")
        return character

    def lift(self, text: str) -> str:
        return text.translate({ord(stand_in): character for character, stand_in in self._of.items()})


class _Strings:
    """A set of control strings, and where they begin in a text."""

    def __init__(self, strings: Iterable[str]) -> None:
        every = list(strings)
        self.pattern = re.compile(_any_of(every) if every else r"(?!)")
        self._heads = {text[:size] for text in every for size in range(1, len(text))}
        self._tails = {text[size:] for text in every for size in range(1, len(text))}
        self._max_len = max(map(len, every), default=1)
        self._all = "\0".join(every)

    def starts_in(self, text: str) -> Iterator[int]:
        """Positions to break so that neither the text nor the text within any surroundings holds a control string."""
        start = 0
        while match := self.pattern.search(text, start):
            yield match.start()
            start = match.start() + 1
        # A template may trim a text: look at its bare ends too.
        for end in {len(text), len(text.rstrip())}:
            sizes = range(1, min(self._max_len, end + 1))
            yield from (end - size for size in sizes if text[end - size : end] in self._heads)
        for first in {0, len(text) - len(text.lstrip())}:
            sizes = range(1, min(self._max_len, len(text) - first + 1))
            if any(text[first : first + size] in self._tails for size in sizes) or self._holds(text[first:].rstrip()):
                yield first

    def _holds(self, text: str) -> bool:
        """Whether one of the strings holds all of the text, so that both sides together could complete it."""
        return 0 < len(text) < self._max_len and text in self._all


def _any_of(strings: Iterable[str]) -> str:
    """A regular expression for the longest of the strings that begins at a place, as tokenizers take it.

    Beginnings that strings share are written once. Vocabularies have up to a thousand control tokens of one pattern,
    and trying each of them at every ``<`` of a long message would hold up everybody for minutes.
    """
    rests: dict[str, list[str]] = {}
    ends_here = False
    for text in strings:
        if text:
            rests.setdefault(text[0], []).append(text[1:])
        else:
            ends_here = True
    if not rests:
        return ""
    options = "|".join(re.escape(first) + _any_of(rest) for first, rest in rests.items())
    return f"(?:{options})" + ("?" if ends_here else "")


def _is_written(text: str, template: str | None) -> bool:
    """Whether a template writes an added token. Words and white space are text there as anywhere."""
    return template is not None and text in template and not (text.isalnum() or text.isspace())


def _is_examined(text: str, template: str | None) -> bool:
    quoted = f"['\"]{re.escape(text)}['\"]"
    return template is not None and re.search(EXAMINED.format(quoted), template) is not None


def _respell_model(model: dict[str, Any], names: Mapping[str, str]) -> None:
    """Rename tokens of a serialised model; what could be merged into one of them no longer is."""
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        model["vocab"] = {names.get(token, token): token_id for token, token_id in vocab.items()}
    else:
        model["vocab"] = [[names.get(token, token), score] for token, score in vocab]
    if "merges" in model:
        model["merges"] = [pair for pair in model["merges"] if not {*pair, "".join(pair)} & names.keys()]
    if model.get("unk_token") in names:
        model["unk_token"] = names[model["unk_token"]]
