"""Whom to preempt, and how: swap its blocks to CPU memory, or free them and recompute.

Swapping moves the victim's blocks out and later in again; recomputing costs a prefill of everything it knows. Which is
cheaper depends on the machine and the block size (section 4.5 and figure 19 of the PagedAttention paper), so both
speeds are measured while serving.
"""

from __future__ import annotations

from collections.abc import Iterable

from engine.config import PreemptionMode
from engine.request import Request

_SMOOTHING = 0.2
"""Weight of a new measurement. Steps are noisy; a change of load shows within ten of them."""

_MIN_PREFILL_TOKENS = 32
"""Steps with fewer prompt tokens say more about decoding than about prefill speed."""


class CostModel:
    """Running estimates of prefill and copy speed; the initial ones only matter until the first measurements.

    Attributes:
        prefill_tokens_per_s: tokens computed per second in steps that are mostly prefill.
        copy_bytes_per_s: speed of moving blocks between the device and the CPU pool.
    """

    def __init__(self, block_bytes: int) -> None:
        self.prefill_tokens_per_s = 1000.0
        self.copy_bytes_per_s = 5e9
        self._block_bytes = block_bytes

    def record_prefill(self, num_tokens: int, num_decodes: int, model_s: float) -> None:
        if num_tokens >= max(_MIN_PREFILL_TOKENS, 2 * num_decodes) and model_s > 0:
            self.prefill_tokens_per_s += _SMOOTHING * (num_tokens / model_s - self.prefill_tokens_per_s)

    def record_swap(self, num_blocks: int, transfer_s: float) -> None:
        if num_blocks and transfer_s > 0:
            measured = num_blocks * self._block_bytes / transfer_s
            self.copy_bytes_per_s += _SMOOTHING * (measured - self.copy_bytes_per_s)

    def is_swap_cheaper(self, num_blocks: int, num_tokens: int) -> bool:
        """Out and in again against one prefill of all tokens."""
        return 2 * num_blocks * self._block_bytes / self.copy_bytes_per_s < num_tokens / self.prefill_tokens_per_s

    def prefers_swap(self, mode: PreemptionMode, num_blocks: int, num_tokens: int) -> bool:
        if mode == "auto":
            return self.is_swap_cheaper(num_blocks, num_tokens)
        return mode == "swap"


def choose_displaced(running: Iterable[Request], newcomer: Request, level: int) -> list[Request]:
    """Running requests that a newcomer of class ``level`` may displace, the first to go first.

    Only strictly lower classes count, and ageing protects: a request that has waited long ranks, once it runs, with
    the class it has reached. Among equals the latest goes first: it has the least to lose.
    """
    return sorted(
        (request for request in running if request.level > level and request is not newcomer),
        key=lambda request: request.rank,
        reverse=True,
    )
