"""What changes single logits before a token is drawn: biases, bans and penalties, over a batch of rows at once.

All of it is sparse. A row has a hundred thousand logits, of which a request touches those of its own history; so each
processor gathers the entries it touches, from all rows together, and writes them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from engine.plan import Draw


def is_plain(draw: Draw) -> bool:
    """Whether the draw takes the logits as they are."""
    params = draw.params
    return not (
        draw.banned_token_ids
        or params.logit_bias
        or params.repetition_penalty != 1.0
        or params.presence_penalty
        or params.frequency_penalty
    )


def process_logits(logits: Tensor, draws: Sequence[Draw]) -> None:
    """Apply biases, bans, then penalties, in place.

    Args:
        logits: [R, V] float32.
        draws: R of them. Their token ids must be below V: requests with others are refused at admission.
    """
    _add_bias(logits, draws)
    _ban(logits, draws)
    _penalise_repetition(logits, draws)
    _penalise_presence(logits, draws)
    _penalise_frequency(logits, draws)


class _Entries(NamedTuple):
    """Some entries of the logits, by (rows, token ids), and a number for each."""

    places: tuple[Tensor, Tensor]
    values: Tensor


def _entries(logits: Tensor, parts: Iterable[tuple[int, Sequence[int], object]]) -> _Entries | None:
    """Gather parts (row, token ids, one number or one for each id); None if there is nothing in them."""
    rows, token_ids, values = [], [], []
    for row, ids, value in parts:
        rows.append(np.full(len(ids), row))
        token_ids.append(np.array(ids, dtype=np.int64))
        values.append(np.full(len(ids), value, dtype=np.float32))
    if not any(map(len, rows)):
        return None
    all_rows, all_ids, all_values = (
        torch.from_numpy(np.concatenate(arrays)).to(logits.device) for arrays in (rows, token_ids, values)
    )
    return _Entries((all_rows, all_ids), all_values)


def _add_bias(logits: Tensor, draws: Sequence[Draw]) -> None:
    parts = ((row, list(b), list(b.values())) for row, draw in enumerate(draws) if (b := draw.params.logit_bias))
    if entries := _entries(logits, parts):
        logits[entries.places] += entries.values


def _ban(logits: Tensor, draws: Sequence[Draw]) -> None:
    parts = ((row, list(draw.banned_token_ids), -np.inf) for row, draw in enumerate(draws))
    if entries := _entries(logits, parts):
        logits[entries.places] = entries.values


def _penalise_repetition(logits: Tensor, draws: Sequence[Draw]) -> None:
    """Make every token of prompt and output less likely, whatever the sign of its logit."""
    parts = (
        (row, token_ids, penalty)
        for row, draw in enumerate(draws)
        if (penalty := draw.params.repetition_penalty) != 1.0
        for token_ids in (draw.prompt_token_ids, draw.output_token_ids)
    )
    if entries := _entries(logits, parts):
        # Here and below, a token that occurs twice is written twice, with the same value.
        old = logits[entries.places]
        logits[entries.places] = torch.where(old > 0, old / entries.values, old * entries.values)


def _penalise_presence(logits: Tensor, draws: Sequence[Draw]) -> None:
    parts = ((row, draw.output_token_ids, p) for row, draw in enumerate(draws) if (p := draw.params.presence_penalty))
    if entries := _entries(logits, parts):
        logits[entries.places] = logits[entries.places] - entries.values


def _penalise_frequency(logits: Tensor, draws: Sequence[Draw]) -> None:
    parts = ((row, draw.output_token_ids, p) for row, draw in enumerate(draws) if (p := draw.params.frequency_penalty))
    if entries := _entries(logits, parts):
        logits.index_put_(entries.places, -entries.values, accumulate=True)
