"""Draws from a distribution by a race: outcome i arrives after an Exp(1) time divided by its weight; the first wins.

The winner is distributed as the weights (the Gumbel-max trick in other clothes). Unlike inverting a cumulative sum, the
race is steady: a small change of the weights changes the winner only when two outcomes arrive almost together. The
logits' last bits do change with the batch around a row, by 1e-5 or so in float32; they change the token about as
seldom, however improbable it is. Inverted, every unlikely token would be at the mercy of the sum of those before it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

CHUNK = 256


def draw(weights: Tensor, seeds: Sequence[int]) -> Tensor:
    """Draw one outcome of each row.

    Two races, so that few random numbers are needed: of chunks of outcomes that follow one another, then inside the
    chunk that has won.

    Args:
        weights: [R, N] float32, not negative, not all 0 in a row; need not sum to 1.
        seeds: R of 64 bits. The same seed and weights give the same outcome, whatever the other rows are.

    Returns:
        [R] int64. A row of NaN leads anywhere.
    """
    num_rows, num_outcomes = weights.shape
    if num_outcomes % CHUNK:
        weights = F.pad(weights, (0, -num_outcomes % CHUNK))
    chunks = weights.view(num_rows, -1, CHUNK)
    times = torch.from_numpy(exponentials(seeds, chunks.shape[1] + CHUNK)).to(weights.device)
    chunk = (chunks.sum(dim=-1) / times[:, CHUNK:]).argmax(dim=-1)
    rows = torch.arange(num_rows, device=weights.device)
    place = (chunks[rows, chunk] / times[:, :CHUNK]).argmax(dim=-1)
    return (chunk * CHUNK + place).clamp(max=num_outcomes - 1)


def exponentials(seeds: Sequence[int], count: int) -> NDArray[np.float64]:
    """Exp(1) numbers [R, count], each row a function of its seed: the SplitMix64 generator (Steele et al. 2014)."""
    steps = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = np.array(seeds, dtype=np.uint64)[:, None] + steps
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    uniform: NDArray[np.float64] = ((bits >> np.uint64(12)) + 0.5) * 2.0**-52  # between 0 and 1, and neither
    return -np.log(uniform)
