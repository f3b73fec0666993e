"""Beam search: which beams live on, which are finished, and when no better one can come.

The rules are those of Hugging Face's ``generate`` for one prompt, so that sequences and scores agree:

- Each step extends every live beam and ranks all extensions by their summed log-probability, keeping enough of them
  that ``width`` can live on even if all others end.
- An extension that ends (a stop token, a stop string, the last token allowed) is finished if it is among the first
  ``width``; else it is dropped. The first ``width`` that do not end are the live beams of the next step.
- A finished beam's score is its log-probability divided by length ** length_penalty. The ``width`` best are kept.
- The search is over when nothing lives on, or when ``width`` beams are finished and ``early_stopping`` is True or the
  best live beam could not beat the worst of them: at its present length, or with "never" and a positive length penalty
  at the greatest length.

Pure bookkeeping: the scheduler forks block tables as told, and the sampler finds the extensions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from engine.api import FinishReason, SamplingParams, TokenLogprob
from engine.detokenizer import Detokenizer

_MAX_EXPONENT = 600.0  # exp() of it is a float, even times a log-probability


class BeamStep(NamedTuple):
    """The live beams of the next step: beam i continues beam ``parents[i]`` of this one with ``token_ids[i]``."""

    parents: tuple[int, ...]
    token_ids: tuple[int, ...]


class Hypothesis(NamedTuple):
    """A finished beam. Its tokens include the one that ended it."""

    token_ids: tuple[int, ...]
    score: float
    finish_reason: FinishReason
    stop_reason: str | int | None


class BeamSearch:
    """The beams of one request. It starts with a single live one: the prompt.

    Args:
        params: ``num_sequences`` is the width.
        max_tokens: tokens that a beam may have at most.
        eos_token_ids: end a beam, like ``params.stop_token_ids``; empty where they are to be ignored.
        detokenizer: a fresh one, which knows the stop strings.
    """

    def __init__(
        self, params: SamplingParams, *, max_tokens: int, eos_token_ids: Collection[int], detokenizer: Detokenizer
    ) -> None:
        self._params = params
        self._width = params.num_sequences
        self._max_tokens = max_tokens
        self._stop_token_ids = frozenset(params.stop_token_ids).union(eos_token_ids)
        self._live = [_Beam(None, -1, 0.0, detokenizer)]
        self._finished: list[tuple[float, _Beam, _End]] = []
        self._num_tokens = 0

    @property
    def num_candidates(self) -> int:
        """How many of its likeliest extensions must be known of each live beam."""
        return max(2, 1 + len(self._stop_token_ids)) * self._width

    def step(self, candidates: Sequence[Sequence[TokenLogprob]]) -> BeamStep:
        """Extend the live beams.

        Args:
            candidates: of each live beam, in order, its ``num_candidates`` likeliest extensions.

        Returns:
            The next live beams, best first; none once the search is over.
        """
        self._num_tokens += 1
        parents: list[int] = []
        live: list[_Beam] = []
        for rank, (parent, extension) in enumerate(self._best_extensions(candidates)):
            beam = self._live[parent].extended(extension, may_stop=self._num_tokens >= self._params.min_tokens)
            end = self._end(beam)
            if end is None and len(live) < self._width:
                parents.append(parent)
                live.append(beam)
            elif end is not None and rank < self._width:
                self._finished.append((self._score(beam.logprob, self._num_tokens), beam, end))
        self._finished.sort(key=lambda finished: -finished[0])
        del self._finished[self._width :]
        self._live = [] if self._is_over(live) else live
        num_live = len(self._live)
        return BeamStep(tuple(parents[:num_live]), tuple(beam.token_id for beam in self._live))

    def hypotheses(self) -> list[Hypothesis]:
        """The best ``n`` finished beams, best first."""
        best = self._finished[: self._params.n]
        return [Hypothesis(beam.token_ids(), score, end.finish_reason, end.stop_reason) for score, beam, end in best]

    def _best_extensions(self, candidates: Sequence[Sequence[TokenLogprob]]) -> list[tuple[int, TokenLogprob]]:
        """The likeliest extensions of all live beams as (parent, token with the log-probability of the whole beam)."""
        extensions = [
            (parent, TokenLogprob(token.token_id, beam.logprob + token.logprob))
            for parent, (beam, tokens) in enumerate(zip(self._live, candidates, strict=True))
            for token in tokens
        ]
        extensions.sort(key=lambda extension: -extension[1].logprob)
        return extensions[: self.num_candidates]

    def _end(self, beam: _Beam) -> _End | None:
        if beam.token_id in self._stop_token_ids:
            return _End("stop", beam.token_id if beam.token_id in self._params.stop_token_ids else None)
        if beam.detokenizer.matched_stop is not None:
            return _End("stop", beam.detokenizer.matched_stop)
        return _End("length", None) if self._num_tokens >= self._max_tokens else None

    def _is_over(self, live: list[_Beam]) -> bool:
        if not live:
            return True
        if len(self._finished) < self._width:
            return False
        params = self._params
        if params.early_stopping is True:
            return True
        looks_ahead = params.early_stopping == "never" and params.length_penalty > 0
        best_length = self._max_tokens if looks_ahead else self._num_tokens
        worst_score = self._finished[-1][0]
        return self._score(live[0].logprob, best_length) <= worst_score

    def _score(self, logprob: float, num_tokens: int) -> float:
        exponent = self._params.length_penalty * math.log(num_tokens)
        return logprob / math.exp(max(-_MAX_EXPONENT, min(exponent, _MAX_EXPONENT)))


class _End(NamedTuple):
    finish_reason: FinishReason
    stop_reason: str | int | None


class _Beam(NamedTuple):
    """One token of a beam, linked to those before it: beams share what they have in common."""

    parent: _Beam | None
    token_id: int
    logprob: float
    detokenizer: Detokenizer

    def extended(self, token: TokenLogprob, may_stop: bool) -> _Beam:
        detokenizer = self.detokenizer
        if detokenizer.has_stop:
            detokenizer = detokenizer.fork()
            detokenizer.push(token.token_id, may_stop)
        return _Beam(self, token.token_id, token.logprob, detokenizer)

    def token_ids(self) -> tuple[int, ...]:
        """The tokens from the first one on."""
        reverse = []
        beam = self
        while beam.parent is not None:
            reverse.append(beam.token_id)
            beam = beam.parent
        return tuple(reversed(reverse))
