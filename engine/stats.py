"""What the engine has done and holds: counters and histograms fed by the loop, and snapshots of them for everyone else.

Feeding costs O(1) per step and per token. What can be counted when asked (blocks, queues, slots) is not tracked here
but handed in with the question.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from engine.api import Priority
from engine.block_pool import BlockCounts

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
        num_running, num_waiting: requests by class.
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
        num_prompt_tokens: of admitted requests; ``num_cached_tokens`` of them were found in the prefix cache.
        num_output_tokens: tokens drawn.
        prompt_tokens_per_s, output_tokens_per_s: computed and drawn, over the last ``RATE_WINDOW_S`` seconds.
        time_to_first_token_s: from submission.
        inter_token_s: between tokens of a request.
    """

    occupancy: Occupancy
    num_steps: int
    times: StepTimes
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    num_swap_preemptions: int
    num_recompute_preemptions: int
    time_to_first_token_s: Histogram
    inter_token_s: Histogram

    @property
    def cache_hit_rate(self) -> float:
        """Share of the prompt tokens that were not computed but reused."""
        return self.num_cached_tokens / self.num_prompt_tokens if self.num_prompt_tokens else 0.0


class StatsCollector:
    """Counts what happens. All methods are for the engine loop; ``now`` is a monotonic clock in seconds."""

    def __init__(self, started_at: float) -> None:
        self._started_at = started_at
        self._num_steps = 0
        self._times = [0.0] * len(StepTimes._fields)
        self._num_prompt_tokens = 0
        self._num_cached_tokens = 0
        self._num_output_tokens = 0
        self._num_preemptions = {"swap": 0, "recompute": 0}
        self._computed = _Rate()
        self._drawn = _Rate()
        self._first_token = _Buckets(FIRST_TOKEN_BOUNDS_S)
        self._inter_token = _Buckets(INTER_TOKEN_BOUNDS_S)

    def record_prompt(self, num_tokens: int, num_cached: int) -> None:
        """A request has been admitted for the first time, with so much of its prompt found in the cache."""
        self._num_prompt_tokens += num_tokens
        self._num_cached_tokens += num_cached

    def record_step(self, times: StepTimes, num_prompt_tokens: int, num_output_tokens: int, now: float) -> None:
        """A step has computed so many prompt tokens and drawn so many output tokens."""
        self._num_steps += 1
        for i, seconds in enumerate(times):
            self._times[i] += seconds
        self._num_output_tokens += num_output_tokens
        self._computed.add(num_prompt_tokens, now)
        self._drawn.add(num_output_tokens, now)

    def record_preemption(self, way: Literal["swap", "recompute"]) -> None:
        self._num_preemptions[way] += 1

    def record_first_token(self, waited_s: float) -> None:
        self._first_token.add(waited_s)

    def record_inter_token(self, gap_s: float) -> None:
        self._inter_token.add(gap_s)

    def snapshot(self, occupancy: Occupancy, now: float) -> EngineStats:
        age_s = now - self._started_at
        return EngineStats(
            occupancy=occupancy,
            num_steps=self._num_steps,
            times=StepTimes(*self._times),
            num_prompt_tokens=self._num_prompt_tokens,
            num_cached_tokens=self._num_cached_tokens,
            num_output_tokens=self._num_output_tokens,
            prompt_tokens_per_s=self._computed.per_s(now, age_s),
            output_tokens_per_s=self._drawn.per_s(now, age_s),
            num_swap_preemptions=self._num_preemptions["swap"],
            num_recompute_preemptions=self._num_preemptions["recompute"],
            time_to_first_token_s=self._first_token.histogram(),
            inter_token_s=self._inter_token.histogram(),
        )


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
