"""The inside of the running engine at one moment, to be looked at: who holds which block, and what the last steps did.

Nothing here is collected for it but the last few steps; everything else is read off when somebody asks. What there is
one of for each block comes as bytes, so that a hundred thousand blocks are a hundred kilobytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from engine.api import Priority
from engine.block_manager import BlockManager
from engine.block_pool import BlockPool
from engine.request import Request, Status
from engine.step import Share, Step

NUM_TRACED_STEPS = 64

FREE, CACHED, HELD = 0, 1, 2
"""Values in ``EngineTrace.states``. A held block may be cached as well; one in transfer counts as held."""

_MAX_REFERENCES = 255


class TracedShare(NamedTuple):
    """What one step computed for one request: tokens of its prompt, or to catch up, and tokens of running streams."""

    request_id: str
    num_prefill_tokens: int
    num_decode_tokens: int


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One step. ``started_at`` is on the monotonic clock; numbers count up from 0 and never repeat."""

    number: int
    started_at: float
    duration_s: float
    shares: tuple[TracedShare, ...]
    preempted: tuple[str, ...]
    num_copied: int
    num_swapped_out: int
    num_swapped_in: int


@dataclass(frozen=True, slots=True)
class TracedRequest:
    """A request that runs or waits. ``block_tables`` has one table for each of its sequences.

    ``swap_tables`` names blocks of the CPU pool instead, while it is swapped out.
    """

    request_id: str
    priority: Priority
    state: Literal["running", "waiting", "swapped"]
    num_tokens: int
    num_computed_tokens: int
    num_preemptions: int
    block_tables: tuple[tuple[int, ...], ...]
    swap_tables: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class EngineTrace:
    """A picture of the engine.

    Attributes:
        states, references: one byte for each device block; references are clipped at 255.
        swap_states: the same for the CPU pool.
        steps: the last ones, oldest first.
    """

    block_size: int
    states: bytes
    references: bytes
    swap_states: bytes
    requests: tuple[TracedRequest, ...]
    steps: tuple[TracedStep, ...]


@dataclass(frozen=True, slots=True)
class TracedBlock:
    """One device block: its prefix-cache key in hexadecimal, if it has one, and how long it has had its content."""

    key: str | None
    num_references: int
    age_steps: int


class Tracer:
    """Remembers the last steps. Keeping them costs nothing; they are read only when asked for."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, float, float, Step]] = deque(maxlen=NUM_TRACED_STEPS)
        self._num_steps = 0

    def record_step(self, step: Step, started_at: float, duration_s: float) -> None:
        self._steps.append((self._num_steps, started_at, duration_s, step))
        self._num_steps += 1

    def trace(self, manager: BlockManager, requests: Iterable[Request]) -> EngineTrace:
        return EngineTrace(
            block_size=manager.block_size,
            states=_states(manager.device),
            references=bytes(min(count, _MAX_REFERENCES) for count in manager.device.references()),
            swap_states=_states(manager.cpu),
            requests=tuple(_trace_request(request) for request in requests),
            steps=tuple(_trace_step(*recorded) for recorded in self._steps),
        )


def inspect_block(manager: BlockManager, block: int) -> TracedBlock:
    key = manager.key_of(block)
    pool = manager.device
    return TracedBlock(None if key is None else key.hex(), pool.num_references(block), pool.age_steps(block))


def _states(pool: BlockPool) -> bytes:
    flags = zip(pool.references(), pool.cached_flags(), strict=True)
    return bytes(HELD if references else CACHED if is_cached else FREE for references, is_cached in flags)


def _trace_request(request: Request) -> TracedRequest:
    running = request.status is Status.RUNNING
    return TracedRequest(
        request_id=request.request_id,
        priority=request.priority,
        state="running" if running else "swapped" if request.is_swapped_out else "waiting",
        num_tokens=sum(sequence.num_tokens for sequence in request.sequences),
        num_computed_tokens=sum(sequence.num_computed_tokens for sequence in request.sequences),
        num_preemptions=request.num_preemptions,
        block_tables=tuple(tuple(sequence.block_table) for sequence in request.sequences),
        swap_tables=tuple(tuple(sequence.swap_table) for sequence in request.sequences if sequence.swap_table),
    )


def _trace_step(number: int, started_at: float, duration_s: float, step: Step) -> TracedStep:
    transfers = step.plan.transfers
    return TracedStep(
        number=number,
        started_at=started_at,
        duration_s=duration_s,
        shares=tuple(_trace_share(share, step) for share in step.shares),
        preempted=tuple(request.request_id for request, notice in step.notices if notice == "preempted"),
        num_copied=len(transfers.copies),
        num_swapped_out=len(transfers.swap_outs),
        num_swapped_in=len(transfers.swap_ins),
    )


def _trace_share(share: Share, step: Step) -> TracedShare:
    rows = step.plan.rows[share.first_row : share.first_row + len(share.sequences)]
    num_tokens = sum(len(row.token_ids) for row in rows)
    num_decode = sum(row.start >= share.request.num_prompt_tokens and len(row.token_ids) == 1 for row in rows)
    return TracedShare(share.request.request_id, num_tokens - num_decode, num_decode)
