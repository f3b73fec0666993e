"""From logits to tokens: greedy, temperature with top-k, top-p and min-p, candidates for beams, log-probabilities.

The order is Hugging Face's: biases and bans, penalties, temperature, min-p, top-k, top-p, draw. Rows are grouped by
what they ask for, and nothing is computed for a row that does not need it.

A token depends on (seed, sequence index, position) and the row's logits only, and hardly on their last bits, which
change with the batch around the row: see ``engine.race``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine import race
from engine.api import PositionLogprobs, TokenLogprob
from engine.logit_processors import is_plain, process_logits
from engine.plan import Draw, Drawn
from engine.randomness import sequence_seed, token_seed

MIN_LOGPROB = -9999.0
"""Stands for the logarithm of zero, which JSON cannot spell."""

_NUM_CANDIDATES = 256
"""How many of the largest logits are ranked at first, in the hope that top-k, top-p and min-p keep no others."""

_GROWTH = 16
"""How many times as many are ranked next, of the rows where those were too few."""


class Sampler:
    """Draws tokens for all rows of a step. Keeps no state."""

    def sample(self, logits: Tensor, draws: Sequence[Draw]) -> list[Drawn]:
        """Draw one token from each row, or find a beam's candidates.

        Args:
            logits: [S, V] float32; not changed.
            draws: S of them, one for each row.

        Returns:
            S results. A row with NaN or +inf, or with nothing left to draw, has ``failed`` set; the others don't care.
        """
        drawn: dict[int, Drawn] = {}
        for (way, plain), rows in _group(draws).items():
            group = [draws[row] for row in rows]
            group_logits = _select(logits, rows)
            if not plain:
                group_logits = group_logits.clone() if group_logits is logits else group_logits
                process_logits(group_logits, group)
            drawn.update(zip(rows, way(group_logits, group), strict=True))
        _add_logprobs(logits, draws, drawn)
        return [drawn[row] for row in range(len(draws))]


def position_logprobs(logits: Tensor, token_ids: Sequence[int], num_top: int) -> list[PositionLogprobs]:
    """Log-probabilities of given tokens and of the likeliest ones, under the raw logits. Always finite.

    Args:
        logits: [S, V] float32. For a prompt, the row of each position; then ``token_ids`` are those of the next ones.
        token_ids: S of them.
        num_top: how many of the likeliest tokens to tell; may be 0.
    """
    chosen = torch.tensor(token_ids, device=logits.device).unsqueeze(-1)
    top_logits, top_ids = _top(logits, num_top)
    values = torch.cat((logits.gather(1, chosen), top_logits), dim=1) - logits.logsumexp(dim=-1, keepdim=True)
    values = values.nan_to_num(nan=MIN_LOGPROB).clamp(min=MIN_LOGPROB, max=0.0)
    ids = torch.cat((chosen, top_ids), dim=1)
    return [
        PositionLogprobs(chosen=tokens[0], top=tokens[1:])
        for tokens in (tuple(map(TokenLogprob, *row)) for row in zip(ids.tolist(), values.tolist(), strict=True))
    ]


_Way = Callable[[Tensor, Sequence[Draw]], list[Drawn]]


def _group(draws: Sequence[Draw]) -> dict[tuple[_Way, bool], list[int]]:
    """Rows by the way to draw from them and whether their logits are taken as they are."""
    groups: dict[tuple[_Way, bool], list[int]] = {}
    for row, draw in enumerate(draws):
        way = _way(draw)
        # Hugging Face's beams process log-probabilities instead of logits.
        plain = way is _expand_beams or is_plain(draw)
        groups.setdefault((way, plain), []).append(row)
    return groups


def _way(draw: Draw) -> _Way:
    params = draw.params
    if draw.num_candidates:
        return _expand_beams
    if params.is_greedy:
        return _draw_likeliest
    if params.top_k or params.top_p < 1.0 or params.min_p:
        return _draw_filtered
    return _draw_from_all


def _select(logits: Tensor, rows: list[int]) -> Tensor:
    return logits if len(rows) == len(logits) else logits[torch.tensor(rows, device=logits.device)]


def _to_drawn(token_ids: Tensor, peaks: Tensor) -> list[Drawn]:
    """Fetch tokens [R] and the largest logit [R] of their rows, which is not finite where the row makes no sense."""
    ids, finite = torch.stack((token_ids, peaks.isfinite().to(token_ids.dtype))).tolist()
    return [Drawn(TokenLogprob(i, 0.0), failed=not ok) for i, ok in zip(ids, finite, strict=True)]


def _draw_likeliest(logits: Tensor, draws: Sequence[Draw]) -> list[Drawn]:
    # On a CPU numpy finds the place of a maximum several times faster than torch. NaN counts as the largest in both.
    token_ids = torch.from_numpy(logits.numpy().argmax(axis=-1)) if logits.is_cpu else logits.argmax(dim=-1)
    return _to_drawn(token_ids, logits.gather(1, token_ids.unsqueeze(-1)).squeeze(-1))


def _expand_beams(logits: Tensor, draws: Sequence[Draw]) -> list[Drawn]:
    logprobs = logits.log_softmax(dim=-1)
    process_logits(logprobs, draws)
    values, ids = _top(logprobs, max(draw.num_candidates for draw in draws))
    drawn = []
    for draw, *row in zip(draws, ids.tolist(), values.tolist(), strict=True):
        candidates = tuple(TokenLogprob(i, p) for i, p in zip(*row, strict=True) if p > -math.inf)
        best = candidates[0] if candidates else TokenLogprob(0, MIN_LOGPROB)
        drawn.append(Drawn(best, top=candidates[: draw.num_candidates], failed=not candidates))
    return drawn


def _draw_from_all(logits: Tensor, draws: Sequence[Draw]) -> list[Drawn]:
    peaks, probabilities = _soften(logits, draws)
    return _to_drawn(_pick(probabilities, draws), peaks)


def _draw_filtered(logits: Tensor, draws: Sequence[Draw]) -> list[Drawn]:
    peaks, probabilities = _soften(logits, draws)
    limits = [(d.params.temperature, d.params.top_k or math.inf, d.params.top_p, d.params.min_p) for d in draws]
    rows = _Filtered(logits, probabilities.amax(dim=-1, keepdim=True).double(), _to_tensor(limits, logits))
    _drop_below(_cutoff(rows, _NUM_CANDIDATES), logits, probabilities)
    return _to_drawn(_pick(probabilities, draws), peaks)


def _soften(logits: Tensor, draws: Sequence[Draw]) -> tuple[Tensor, Tensor]:
    """Largest logit [R] of each row, and the probabilities [R, V] at its temperature."""
    peaks = logits.amax(dim=-1, keepdim=True)
    temperatures = _to_tensor([[draw.params.temperature] for draw in draws], logits).float()
    return peaks.squeeze(-1), (logits - peaks).div_(temperatures).softmax(dim=-1)


def _pick(probabilities: Tensor, draws: Sequence[Draw]) -> Tensor:
    return race.draw(probabilities, [token_seed(sequence_seed(d.seed, d.sequence_index), d.position) for d in draws])


class _Filtered(NamedTuple):
    """Rows of which only the likeliest tokens are kept."""

    logits: Tensor  # [R, V] float32
    peak_probabilities: Tensor  # [R, 1] float64
    limits: Tensor  # [R, 4] float64: temperature, top_k, top_p, min_p


class _Cutoff(NamedTuple):
    """What is kept of each row: all logits above the last one, and some of those equal to it."""

    last: Tensor  # [R, 1] float32, the smallest logit kept
    num_tied: Tensor  # [R, 1], how many equal to the last one are kept
    is_tie_split: Tensor  # [R], whether there are more


def _cutoff(rows: _Filtered, num_candidates: int) -> _Cutoff:
    """Find what top-k, top-p and min-p keep, ranking only so many candidates, and more where those are too few."""
    vocab_size = rows.logits.shape[-1]
    values = _ranked(rows.logits, min(num_candidates, vocab_size))
    num_kept, certain = _num_kept(values, rows)
    last = values.gather(1, num_kept - 1)
    cutoff = _Cutoff(
        last=last,
        num_tied=num_kept - (values > last).sum(dim=-1, keepdim=True),
        is_tie_split=(values >= last).sum(dim=-1) > num_kept.squeeze(-1),
    )
    if num_candidates < vocab_size:
        # Beyond the last candidate there may be others equal to it.
        certain &= (last > values[:, -1:]).squeeze(-1)
        rest = (~certain & values[:, 0].isfinite()).nonzero().squeeze(-1)
        if len(rest):
            complete = _cutoff(_Filtered(*(tensor[rest] for tensor in rows)), num_candidates * _GROWTH)
            for tensor, part in zip(cutoff, complete, strict=True):
                tensor[rest] = part
    return cutoff


def _num_kept(values: Tensor, rows: _Filtered) -> tuple[Tensor, Tensor]:
    """How many of the ranked candidates [R, C] are kept [R, 1], and whether that is certain without the others [R]."""
    temperature, top_k, top_p, min_p = rows.limits.unsqueeze(-1).unbind(1)
    weights = ((values - values[:, :1]) / temperature).exp()
    ranks = torch.arange(1, values.shape[-1] + 1, device=values.device)
    allowed = (weights >= min_p) & (ranks <= top_k)
    mass = (weights * allowed).cumsum(dim=-1)
    # Top-p is a share of what min-p and top-k leave: of everything, where they are off.
    limited = (min_p > 0) | (top_k < rows.logits.shape[-1])
    total = torch.where(limited, mass[:, -1:], 1.0 / rows.peak_probabilities)
    num_allowed = allowed.sum(dim=-1, keepdim=True)
    nucleus = torch.where(top_p < 1.0, (mass < top_p * total).sum(dim=-1, keepdim=True) + 1, num_allowed)
    certain = ~(limited & allowed[:, -1:]).squeeze(-1)
    return torch.minimum(nucleus, num_allowed).clamp(min=1), certain


def _drop_below(cutoff: _Cutoff, logits: Tensor, probabilities: Tensor) -> None:
    """Zero the probabilities that are not kept. Of equal ones, those with the smaller ids are."""
    probabilities.masked_fill_(logits < cutoff.last, 0.0)
    split = cutoff.is_tie_split.nonzero().squeeze(-1)
    if len(split):
        tied = logits[split] == cutoff.last[split]
        dropped = tied & (tied.cumsum(dim=-1) > cutoff.num_tied[split])
        probabilities[split] = probabilities[split].masked_fill(dropped, 0.0)


def _ranked(logits: Tensor, count: int) -> Tensor:
    """The largest logits of each row, largest first [R, count]."""
    if not logits.is_cpu:
        return logits.topk(count, dim=-1).values
    # On a CPU numpy's selection is several times faster than torch's, and its sorting many times.
    smallest = logits.shape[-1] - count
    largest = np.partition(logits.numpy(), smallest, axis=-1)[:, smallest:]
    largest.sort(axis=-1)
    return torch.from_numpy(largest[:, ::-1].copy())


def _top(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest logits of each row and their token ids, largest first: [R, min(count, V)] each."""
    values, ids = logits.topk(min(count, logits.shape[-1]), dim=-1)
    return values, ids


def _to_tensor(values: Sequence[object], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=torch.float64, device=like.device)


def _add_logprobs(logits: Tensor, draws: Sequence[Draw], drawn: dict[int, Drawn]) -> None:
    rows = [row for row, draw in enumerate(draws) if not draw.num_candidates and draw.params.needs_logprob]
    if not rows:
        return
    counts = [draws[row].params.logprobs or 0 for row in rows]
    token_ids = [drawn[row].token.token_id for row in rows]
    positions = position_logprobs(_select(logits, rows), token_ids, max(counts))
    for row, count, position in zip(rows, counts, positions, strict=True):
        drawn[row] = Drawn(position.chosen, position.top[:count], drawn[row].failed)
