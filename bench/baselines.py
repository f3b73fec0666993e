"""The systems that the PagedAttention paper compares with, as policies over the engine's own scheduler.

All reserve memory for a whole sequence in advance, in one piece whose size a buddy allocator rounds up to a power of
two, as the paper has it:

- FasterTransformer: static batches (a new one starts when the last is done), the model's greatest length reserved.
- Orca: continuous batching. Max reserves the greatest length; Pow2 at most twice the real output, the next power of
  two; Oracle exactly the real output, which no system can know.

They are kinder than the originals: pieces fit wherever enough slots are free, and a static batch pays nothing for
sequences that have ended before the others.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace

from engine.block_manager import BlockManager
from engine.config import EngineConfig
from engine.preemption import CostModel
from engine.request import Request
from engine.scheduler import Scheduler
from engine.step import Step


@dataclass(frozen=True, slots=True)
class Policy:
    """How memory is given, and when requests may join.

    Attributes:
        num_reserved: tokens to reserve, of a request and the model's greatest length; None pages instead.
        is_static: requests join only when nothing runs.
    """

    name: str
    num_reserved: Callable[[Request, int], int] | None = None
    is_static: bool = False

    @property
    def is_sharing(self) -> bool:
        """Whether several answers to one prompt share memory."""
        return self.num_reserved is None

    def build(self, config: EngineConfig, block_bytes: int, max_len: int) -> tuple[BlockManager, Scheduler]:
        """Block manager and scheduler of a loop."""
        assert config.num_blocks is not None
        assert config.num_swap_blocks is not None
        if self.num_reserved is None:
            manager = BlockManager(
                config.num_blocks, config.num_swap_blocks, config.block_size, config.enable_prefix_cache
            )
            return manager, Scheduler(config, manager, CostModel(block_bytes))
        manager = _ReservingManager(config.num_blocks, config.block_size, self.num_reserved, max_len)
        config = replace(config, enable_prefix_cache=False)
        scheduler = _StaticScheduler if self.is_static else Scheduler
        return manager, scheduler(config, manager, CostModel(block_bytes))


def _output_tokens(request: Request) -> int:
    return request.max_tokens


def _max(request: Request, max_len: int) -> int:
    return max_len


def _pow2(request: Request, max_len: int) -> int:
    power = 1 << (_output_tokens(request) - 1).bit_length()
    return min(request.num_prompt_tokens + power, max_len)


def _oracle(request: Request, max_len: int) -> int:
    return request.num_prompt_tokens + _output_tokens(request)


FASTER_TRANSFORMER = Policy("FasterTransformer", _max, is_static=True)
ORCA_MAX = Policy("Orca (Max)", _max)
ORCA_POW2 = Policy("Orca (Pow2)", _pow2)
ORCA_ORACLE = Policy("Orca (Oracle)", _oracle)
PAGED = Policy("chatsrv")
POLICIES = (FASTER_TRANSFORMER, ORCA_MAX, ORCA_POW2, ORCA_ORACLE, PAGED)


class _ReservingManager(BlockManager):
    """All that a request will ever need is taken on admission."""

    def __init__(
        self, num_blocks: int, block_size: int, num_reserved: Callable[[Request, int], int], max_len: int
    ) -> None:
        super().__init__(num_blocks, 0, block_size, enable_prefix_cache=False)
        self._num_reserved = num_reserved
        self._max_len = max_len

    def admit(self, request: Request, num_headroom: int, num_reserved: int) -> bool:
        num_slots = 1 << (self._num_reserved(request, self._max_len) - 1).bit_length()
        num_blocks = -(-num_slots // self.block_size)
        if num_blocks > self.device.num_available:
            return False
        request.sequences[0].block_table = array("i", [self.device.take() for _ in range(num_blocks)])
        return True


class _StaticScheduler(Scheduler):
    """Requests join when nothing runs, and then as many as fit."""

    def schedule(self, now: float) -> Step:
        self._is_open = not self.running
        return super().schedule(now)

    def _admit(self, request: Request, step: Step, now: float) -> bool:
        return self._is_open and super()._admit(request, step, now)
