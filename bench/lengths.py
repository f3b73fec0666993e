"""Lengths of prompts and answers with the means of published traces.

Table 1 of the PagedAttention paper gives the means; the shape is ours: log-normal, as lengths of texts are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

_SPREAD = 0.9
"""Standard deviation of the logarithm; some answers are then ten times as long as others."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Mean numbers of tokens in and out, and the most of each."""

    name: str
    mean_input: float
    mean_output: float
    max_input: int = 1024
    max_output: int = 1024

    def samples(self, count: int, seed: int = 0) -> list[tuple[int, int]]:
        """Tokens of so many prompts and of their answers, always the same for a seed."""
        source = Random(seed)
        inputs = [_log_normal(source, self.mean_input, self.max_input) for _ in range(count)]
        outputs = [_log_normal(source, self.mean_output, self.max_output) for _ in range(count)]
        return list(zip(inputs, outputs, strict=True))


SHAREGPT = Trace("ShareGPT", 161, 338)
ALPACA = Trace("Alpaca", 19, 58)


def _log_normal(source: Random, mean: float, most: int) -> int:
    length = source.lognormvariate(math.log(mean) - _SPREAD**2 / 2, _SPREAD)
    return min(max(round(length), 1), most)
