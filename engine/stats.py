"""What the engine has done and holds: counters and histograms fed by the loop, and snapshots of them for everyone else.

Feeding costs O(1) per step and per token. Blocks, slots and queues are counted when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from engine.api import PRIORITIES, Output, Priority
from engine.block_manager import BlockManager
from engine.block_pool import BlockCounts
from engine.plan import StepResult
from engine.request import Request
from engine.scheduler import PreemptionCounts, Scheduler
from engine.step import Step

FIRST_TOKEN_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
INTER_TOKEN_BOUNDS_S = (0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 5.0)

RATE_WINDOW_S = 10
"""Tokens per second are means over the last seconds, this many and the begun one."""


class StepTimes(NamedTuple):
    """Seconds of one step, or of all steps so far, by what they were spent on."""

    schedule_s: float = 0.0
    transfer_s: float = 0.0
    model_s: float = 0.0
    sample_s: float = 0.0
    apply_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Occupancy:
    """What is held at this moment.

    Attributes:
        blocks, swap_blocks: by state, on the device and in the CPU pool.
        num_slots_allocated: slots of the blocks in the block tables of running sequences, shared blocks counted once.
        num_slots_filled: those of them that hold a token.
        num_running, num_waiting: requests by class; preempted ones wait.
    """

    blocks: BlockCounts
    swap_blocks: BlockCounts
    num_slots_allocated: int
    num_slots_filled: int
    num_running: Mapping[Priority, int]
    num_waiting: Mapping[Priority, int]

    @property
    def waste(self) -> float:
        """Share of the allocated slots that hold nothing."""
        return 1 - self.num_slots_filled / self.num_slots_allocated if self.num_slots_allocated else 0.0


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations by size.

    Attributes:
        bounds: upper bounds of the buckets, each inclusive; one more bucket holds what is above the last.
        counts: of each bucket, ``len(bounds) + 1`` of them; not cumulative.
        total: sum of all observations.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def num_observations(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot. Everything but occupancy and rates only grows while the engine runs.

    Attributes:
        times: all steps' together.
        num_prompt_tokens: of requests that have begun to answer; ``num_cached_tokens`` of them were cached.
        num_output_tokens: tokens drawn.
        prompt_tokens_per_s, output_tokens_per_s: computed and drawn, over the last ``RATE_WINDOW_S`` seconds.
        time_to_first_token_s: from submission.
        inter_token_s: between steps that brought a request new tokens.
    """

    occupancy: Occupancy
    num_steps: int
    times: StepTimes
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    preemptions: PreemptionCounts
    time_to_first_token_s: Histogram
    inter_token_s: Histogram

    @property
    def cache_hit_rate(self) -> float:
        """Share of the prompt tokens that were not computed but reused."""
        return self.num_cached_tokens / self.num_prompt_tokens if self.num_prompt_tokens else 0.0


class StatsRecorder:
    """Counts what happens, for the engine loop. Times are of one monotonic clock, in seconds."""

    def __init__(self, started_at: float) -> None:
        self._started_at = started_at
        self._num_steps = 0
        self._times = [0.0] * len(StepTimes._fields)
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._num_output_tokens = 0
        self._computed = _Rate()
        self._drawn = _Rate()
        self._first_token = _Buckets(FIRST_TOKEN_BOUNDS_S)
        self._inter_token = _Buckets(INTER_TOKEN_BOUNDS_S)

    def record_step(self, step: Step, result: StepResult, schedule_s: float, apply_s: float, now: float) -> None:
        self._num_steps += 1
        times = StepTimes(schedule_s, result.transfer_s, result.model_s, result.sample_s, apply_s)
        for i, seconds in enumerate(times):
            self._times[i] += seconds
        num_drawn = sum(map(len, result.drawn))
        self._num_output_tokens += num_drawn
        self._computed.add(step.num_prefill_tokens, now)
        self._drawn.add(num_drawn, now)

    def record_output(self, request: Request, output: Output, now: float) -> None:
        """A request is told something. Outputs of several sequences in one step count as one."""
        if not output.token_ids:
            return
        if request.last_token_at is None:
            self._first_token.add(now - request.arrived_at)
            self._num_prompt_tokens += request.num_prompt_tokens
            self._num_cached_tokens += request.num_cached_tokens
        elif now > request.last_token_at:
            self._inter_token.add(now - request.last_token_at)
        request.last_token_at = now

    def snapshot(self, scheduler: Scheduler, manager: BlockManager, now: float) -> EngineStats:
        age_s = now - self._started_at
        return EngineStats(
            occupancy=_occupancy(scheduler, manager),
            num_steps=self._num_steps,
            times=StepTimes(*self._times),
            num_prompt_tokens=self._num_prompt_tokens,
            num_cached_tokens=self._num_cached_tokens,
            num_output_tokens=self._num_output_tokens,
            prompt_tokens_per_s=self._computed.per_s(now, age_s),
            output_tokens_per_s=self._drawn.per_s(now, age_s),
            preemptions=replace(scheduler.preemptions),
            time_to_first_token_s=self._first_token.histogram(),
            inter_token_s=self._inter_token.histogram(),
        )


def _occupancy(scheduler: Scheduler, manager: BlockManager) -> Occupancy:
    blocks, swap_blocks = manager.counts()
    num_allocated = blocks.held * manager.block_size
    sequences = (sequence for request in scheduler.running for sequence in request.sequences if sequence.block_table)
    # Only the last block of a table has empty slots; forks may share it.
    num_empty = {
        sequence.block_table[-1]: max(0, len(sequence.block_table) * manager.block_size - sequence.num_tokens)
        for sequence in sequences
    }
    return Occupancy(
        blocks=blocks,
        swap_blocks=swap_blocks,
        num_slots_allocated=num_allocated,
        num_slots_filled=num_allocated - sum(num_empty.values()),
        num_running=_by_class(scheduler.running),
        num_waiting=_by_class(scheduler.waiting),
    )


def _by_class(requests: Iterable[Request]) -> dict[Priority, int]:
    counts = Counter(request.priority for request in requests)
    return {priority: counts[priority] for priority in PRIORITIES}


class _Buckets:
    """A histogram in the making."""

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def histogram(self) -> Histogram:
        return Histogram(self._bounds, tuple(self._counts), self._total)


class _Rate:
    """Mean rate over a sliding window: one count for each of the last seconds, in a ring."""

    __slots__ = ("_counts", "_seconds")

    def __init__(self) -> None:
        self._counts = [0] * (RATE_WINDOW_S + 1)
        self._seconds = [-1] * (RATE_WINDOW_S + 1)

    def add(self, count: int, now: float) -> None:
        second = int(now)
        place = second % len(self._counts)
        if self._seconds[place] != second:
            self._seconds[place] = second
            self._counts[place] = 0
        self._counts[place] += count

    def per_s(self, now: float, age_s: float) -> float:
        """Over the window, or over the ``age_s`` seconds that there were, but at least one."""
        first = int(now) - RATE_WINDOW_S
        counts = zip(self._seconds, self._counts, strict=True)
        return sum(count for second, count in counts if second >= first) / max(min(now - first, age_s), 1.0)
