"""Token ids become text as they are drawn: whole characters only, and nothing of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

_UTF8_DECODER = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Text of one sequence, piece by piece; the pieces together are the decoded text, cut before a stop string.

    Two things are held back: the bytes of a character that is not whole yet, and text that may still grow into a stop
    string. Invalid bytes become U+FFFD once nothing that follows can complete them.

    The stop string that is complete first in the text ends it; of several that end at the same character, the longest.
    So where the text ends depends neither on the order of ``stop`` nor on how the text is split into tokens.

    Args:
        vocabulary: the bytes that each token id adds to the text; empty for control tokens.
        stop: strings that end the text.

    Attributes:
        matched_stop: the stop string that has ended the text; nothing comes after it.
    """

    def __init__(self, vocabulary: Sequence[bytes], stop: Sequence[str] = ()) -> None:
        self._vocabulary = vocabulary
        self._stop = tuple(stop)
        self._decoder = _UTF8_DECODER(errors="replace")
        self._held = ""
        self.matched_stop: str | None = None

    @property
    def has_stop(self) -> bool:
        return bool(self._stop)

    def fork(self) -> Detokenizer:
        """A copy that goes its own way from here."""
        copy = Detokenizer(self._vocabulary, self._stop)
        copy._decoder.setstate(self._decoder.getstate())
        copy._held = self._held
        copy.matched_stop = self.matched_stop
        return copy

    def push(self, token_id: int, may_stop: bool = True) -> str:
        """Add a token and return the text that is now certain.

        The text of tokens pushed with ``may_stop=False`` is no part of any stop string, not even of one that later
        tokens complete.
        """
        return self._advance(self._decoder.decode(self._vocabulary[token_id]), may_stop)

    def finish(self) -> str:
        """Return what was held back, as the sequence has ended. A character still in the middle becomes U+FFFD."""
        text = self._advance(self._decoder.decode(b"", final=True), may_stop=True)
        held, self._held = self._held, ""
        return text + held

    def _advance(self, new_text: str, may_stop: bool) -> str:
        if self.matched_stop is not None:
            return ""
        text = self._held + new_text
        num_held = 0
        if may_stop and self._stop:
            match = self._first_match(text)
            if match is not None:
                self.matched_stop, start = match
                self._held = ""
                return text[:start]
            num_held = self._num_held(text)
        num_safe = len(text) - num_held
        self._held = text[num_safe:]
        return text[:num_safe]

    def _first_match(self, text: str) -> tuple[str, int] | None:
        """The stop string that is complete first, and where it starts."""
        starts = ((stop, text.find(stop)) for stop in self._stop)
        matches = [(start + len(stop), start, stop) for stop, start in starts if start >= 0]
        if not matches:
            return None
        _, start, stop = min(matches)
        return stop, start

    def _num_held(self, text: str) -> int:
        """Length of the longest end of the text that is the beginning of a stop string.

        Tried from the longest down, so that the tries of all pushes together are as many as characters released.
        """
        longest = min(len(text), max(map(len, self._stop)) - 1)
        for size in range(longest, 0, -1):
            if any(stop.startswith(text[-size:]) for stop in self._stop):
                return size
        return 0
