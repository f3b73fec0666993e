"""One serving system under one load of random arrivals: the seconds it takes, and what its memory holds meanwhile."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from statistics import mean

from bench.baselines import Policy
from bench.cost_model import Machine, SimulatedMachine
from bench.lengths import Trace
from bench.simulation import Loop, Runner, fixed_length, random_prompt
from engine.config import EngineConfig
from engine.request import Request

MAX_LEN = 2048
LATENCY_LIMIT_S = 0.2
"""Of normalised latency: about ten times that of an idle system. Rates are compared where it is reached."""

RATE_STEP = 1.25
MAX_RISE = 100.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One question: its prompt, and the tokens of each of its ``n`` answers."""

    at_s: float
    prompt: list[int]
    num_output: int
    n: int = 1
    is_beam: bool = False


@dataclass(slots=True)
class Outcome:
    """What came of one trial.

    Attributes:
        latency_s: normalised latency: mean over arrivals of seconds until all is answered ÷ tokens of an answer.
        total_s: from the first arrival to the last answer.
        num_running: requests in a step, mean.
        filled, to_be_filled, never_filled: shares of the allocated slots, mean over steps: those that hold a token,
            those that will, and those that never will. Each request counts with its first sequence.
    """

    latency_s: float
    total_s: float
    num_running: float
    filled: float
    to_be_filled: float
    never_filled: float


@dataclass(frozen=True, slots=True)
class Setting:
    """A machine to compare on: how many tokens of keys and values it holds, and what runs the plans.

    Attributes:
        rates: requests per second by trace: one at which every system keeps up, and one at which the baselines are
            short of memory.
    """

    name: str
    num_slots: int
    kv_bytes_per_token: int
    runner: Callable[[int], Runner]
    rates: dict[str, tuple[float, float]]


def simulated(machine: Machine, rates: dict[str, tuple[float, float]]) -> Setting:
    def runner(block_size: int) -> Runner:
        return SimulatedMachine(machine, block_size, Random(1))

    return Setting(machine.name, machine.num_slots, machine.kv_bytes_per_token, runner, rates)


def poisson(
    trace: Trace, rate: float, count: int, prefix: Sequence[int] = (), n: int = 1, is_beam: bool = False
) -> list[Arrival]:
    """Requests of a trace at so many per second, each prompt after the same prefix."""
    source, now = Random(2), 0.0
    arrivals = []
    for num_input, num_output in trace.samples(count):
        now += source.expovariate(rate)
        arrivals.append(Arrival(now, [*prefix, *random_prompt(source, num_input)], num_output, n, is_beam))
    return arrivals


@dataclass(slots=True)
class _Question:
    """An arrival, and how many of the requests that answer it still run."""

    arrival: Arrival
    num_open: int


class Trial:
    """One system under one load.

    A system that reserves memory cannot share it, so that several answers are several requests there.
    """

    def __init__(self, policy: Policy, setting: Setting, block_size: int = 16, preemption: str = "auto") -> None:
        config = EngineConfig(
            block_size=block_size,
            num_blocks=setting.num_slots // block_size,
            num_swap_blocks=setting.num_slots // block_size,
            preemption=preemption,  # type: ignore[arg-type]
            max_num_waiting=1 << 20,
        )
        manager, scheduler = policy.build(config, block_size * setting.kv_bytes_per_token, MAX_LEN)
        self._loop = Loop(manager, scheduler, setting.runner(manager.block_size))
        self._policy = policy
        self._questions: dict[str, _Question] = {}
        self._ended: list[Request] = []
        self._latencies: list[float] = []
        self._memory: list[tuple[float, float, float]] = []
        self._num_running: list[int] = []

    def outcome(self, arrivals: Sequence[Arrival]) -> Outcome:
        waiting = deque(arrivals)
        loop = self._loop
        while waiting or loop.scheduler.has_work:
            if not loop.scheduler.has_work:
                loop.now = max(loop.now, waiting[0].at_s)
            while waiting and waiting[0].at_s <= loop.now:
                self._submit(waiting.popleft())
            self._ended += loop.step()
            self._note_memory()
            self._note_ends()
        filled, to_be_filled, never_filled = (mean(shares) for shares in zip(*self._memory, strict=True))
        total_s = loop.now - arrivals[0].at_s
        return Outcome(mean(self._latencies), total_s, mean(self._num_running), filled, to_be_filled, never_filled)

    def _submit(self, arrival: Arrival) -> None:
        if self._policy.is_sharing and arrival.n > 1:
            beams = {"use_beam_search": True, "temperature": 0.0} if arrival.is_beam else {}
            all_params = [fixed_length(arrival.num_output, n=arrival.n, **beams)]
        else:
            all_params = [fixed_length(arrival.num_output)] * arrival.n
        question = _Question(arrival, len(all_params))
        for params in all_params:
            request = self._loop.submit(arrival.prompt, params)
            request.arrived_at = arrival.at_s
            self._questions[request.request_id] = question

    def _note_ends(self) -> None:
        """A static batch answers all its requests when the last has ended."""
        if self._policy.is_static and self._loop.scheduler.running:
            return
        for request in self._ended:
            question = self._questions.pop(request.request_id)
            question.num_open -= 1
            if not question.num_open:
                arrival = question.arrival
                self._latencies.append((self._loop.now - arrival.at_s) / arrival.num_output)
        self._ended.clear()

    def _note_memory(self) -> None:
        running = self._loop.scheduler.running
        if not running:
            return
        self._num_running.append(len(running))
        num_allocated = num_filled = num_final = 0
        for request in running:
            num_slots = len(request.sequences[0].block_table) * self._loop.manager.block_size
            num_allocated += num_slots
            num_filled += min(num_slots, request.sequences[0].num_computed_tokens)
            num_final += min(num_slots, request.num_prompt_tokens + request.max_tokens - 1)
        if num_allocated:
            rest = num_final - num_filled, num_allocated - num_final
            self._memory.append((num_filled / num_allocated, rest[0] / num_allocated, rest[1] / num_allocated))


Points = list[tuple[float, Outcome]]
"""Outcomes by rate, in rising order."""


def sweep(measure: Callable[[float], Outcome], rate: float) -> Points:
    """Outcomes at rates from ``rate`` up until the latency is past its limit, or down until it is not.

    Raises:
        ValueError: no rate is too high, which a trial of too few requests looks like.
    """
    first = rate
    points = [(rate, measure(rate))]
    is_falling = points[0][1].latency_s > LATENCY_LIMIT_S
    while (points[-1][1].latency_s > LATENCY_LIMIT_S) == is_falling:
        rate *= 1 / RATE_STEP if is_falling else RATE_STEP
        if rate > MAX_RISE * first:
            raise ValueError(f"the latency stays below {LATENCY_LIMIT_S} s/token at {rate:.0f} req/s: too few requests")
        points.append((rate, measure(rate)))
    return sorted(points, key=lambda point: point[0])


def sustained_rate(points: Points) -> float:
    """The rate at which the latency reaches its limit, between the two measured around it."""
    number = next(i for i, (_, outcome) in enumerate(points) if outcome.latency_s > LATENCY_LIMIT_S)
    (low, before), (high, after) = points[number - 1 : number + 1]
    share = math.log(LATENCY_LIMIT_S / before.latency_s) / math.log(after.latency_s / before.latency_s)
    return math.exp(math.log(low) + share * math.log(high / low))
