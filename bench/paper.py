"""The PagedAttention paper's comparison with this engine: its baselines, its traces, its figures.

    python -m bench.paper [--machine opt-13b|opt-175b|smollm2] [--requests 500] [--plots FOLDER]

Every system runs the engine's own scheduler; the baselines differ in how they give out memory and when requests may
join. ``opt-13b`` and ``opt-175b`` run against a simulated clock (``bench.cost_model``), ``smollm2`` runs every forward
pass of the demo model and counts the seconds that it takes here. Requests arrive at random (Poisson). Normalised
latency is the mean over requests of seconds from arrival to end divided by tokens of output.
"""

from __future__ import annotations

import argparse
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from statistics import mean

from bench.baselines import ORCA_ORACLE, PAGED, POLICIES, Policy
from bench.cost_model import OPT_13B, OPT_175B, Machine, SimulatedMachine
from bench.lengths import ALPACA, SHAREGPT, Trace
from bench.machine import describe
from bench.simulation import Loop, Runner, fixed_length, random_prompt
from engine.config import EngineConfig
from engine.loading import load_model
from engine.model_runner import ModelRunner
from engine.request import Request

MAX_LEN = 2048
LATENCY_LIMIT_S = 0.2
"""Of normalised latency: about ten times that of an idle system. Rates are compared where it is reached."""

RATE_STEP = 1.25


@dataclass(frozen=True, slots=True)
class Arrival:
    at_s: float
    prompt: list[int]
    num_output: int


@dataclass(slots=True)
class Outcome:
    """What came of one run.

    Attributes:
        latency_s: normalised latency.
        num_running: requests in a step, mean.
        filled, to_be_filled, never_filled: shares of the allocated slots, mean over steps: those that hold a token,
            those that will, and those that never will.
    """

    latency_s: float
    num_running: float
    filled: float
    to_be_filled: float
    never_filled: float


@dataclass(frozen=True, slots=True)
class Setting:
    """A machine to compare on: how many tokens of keys and values it holds, and what runs the plans.

    Attributes:
        rates: requests per second by trace: one to begin with, and one at which the baselines are short of memory.
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


def poisson(trace: Trace, rate: float, count: int, prefix: Sequence[int] = ()) -> list[Arrival]:
    """Requests of a trace at so many per second, each prompt after the same prefix."""
    source, now = Random(2), 0.0
    arrivals = []
    for num_input, num_output in trace.samples(count):
        now += source.expovariate(rate)
        arrivals.append(Arrival(now, [*prefix, *random_prompt(source, num_input)], num_output))
    return arrivals


class Run:
    """One system under one load."""

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
        self._is_static = policy.is_static
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
        return Outcome(mean(self._latencies), mean(self._num_running), filled, to_be_filled, never_filled)

    def _submit(self, arrival: Arrival) -> None:
        request = self._loop.submit(arrival.prompt, fixed_length(arrival.num_output))
        request.arrived_at = arrival.at_s

    def _note_ends(self) -> None:
        """A static batch answers all its requests when the last has ended."""
        if self._is_static and self._loop.scheduler.running:
            return
        now = self._loop.now
        self._latencies += [(now - request.arrived_at) / request.num_output_tokens for request in self._ended]
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


def sweep(measure: Callable[[float], Outcome], rate: float) -> list[tuple[float, Outcome]]:
    """Outcomes at rates from ``rate`` up until the latency is past its limit, or down until it is not."""
    points = [(rate, measure(rate))]
    is_falling = points[0][1].latency_s > LATENCY_LIMIT_S
    while (points[-1][1].latency_s > LATENCY_LIMIT_S) == is_falling:
        rate *= 1 / RATE_STEP if is_falling else RATE_STEP
        points.append((rate, measure(rate)))
    return sorted(points, key=lambda point: point[0])


def sustained_rate(points: Sequence[tuple[float, Outcome]]) -> float:
    """The rate at which the latency reaches its limit, between the two measured around it."""
    number = next(i for i, (_, outcome) in enumerate(points) if outcome.latency_s > LATENCY_LIMIT_S)
    (low, before), (high, after) = points[number - 1 : number + 1]
    share = math.log(LATENCY_LIMIT_S / before.latency_s) / math.log(after.latency_s / before.latency_s)
    return math.exp(math.log(low) + share * math.log(high / low))


@dataclass(frozen=True, slots=True)
class Comparison:
    """All systems on one machine and trace: points of (rate, outcome), and the outcome at the busy rate, by system."""

    title: str
    busy_rate: float
    points: dict[str, list[tuple[float, Outcome]]] = field(default_factory=dict)
    busy: dict[str, Outcome] = field(default_factory=dict)

    def table(self) -> str:
        """Markdown."""
        best = sustained_rate(self.points[PAGED.name])
        lines = [
            f"### {self.title}",
            "",
            f"| system | req/s at {LATENCY_LIMIT_S} s/token | chatsrv's × | at {self.busy_rate:g} req/s: batch "
            "| filled | to be filled | never filled |",
            "|---|--:|--:|--:|--:|--:|--:|",
        ]
        for name, points in self.points.items():
            rate, at = sustained_rate(points), self.busy[name]
            shares = " | ".join(f"{100 * share:.1f}%" for share in (at.filled, at.to_be_filled, at.never_filled))
            lines.append(f"| {name} | {rate:.2f} | {best / rate:.1f} | {at.num_running:.1f} | {shares} |")
        return "\n".join([*lines, ""])


def compare(setting: Setting, trace: Trace, num_requests: int) -> Comparison:
    first_rate, busy_rate = setting.rates[trace.name]
    comparison = Comparison(f"{setting.name}, {trace.name} lengths", busy_rate)
    for policy in POLICIES:

        def measure(rate: float, policy: Policy = policy) -> Outcome:
            return Run(policy, setting).outcome(poisson(trace, rate, num_requests))

        comparison.points[policy.name] = sweep(measure, first_rate)
        comparison.busy[policy.name] = measure(busy_rate)
    return comparison


def plot(comparison: Comparison, folder: Path) -> None:
    """Normalised latency against request rate, one curve for each system."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name, points in comparison.points.items():
        axes.plot([rate for rate, _ in points], [outcome.latency_s for _, outcome in points], marker="o", label=name)
    axes.set(title=comparison.title, xlabel="requests per second", ylabel="normalised latency, s/token")
    axes.set_ylim(0, 2 * LATENCY_LIMIT_S)
    axes.legend()
    name = comparison.title.lower().replace(" ", "-").replace(",", "")
    figure.savefig(folder / f"paper-{name}.png", dpi=120)


def shared_prefix(setting: Setting, num_requests: int) -> str:
    """Short translations after the same examples, one or five of them (figure 16 of the paper)."""
    lines = [
        "### A prefix that all requests share",
        "",
        "| prefix tokens | Orca (Oracle) | chatsrv | × |",
        "|---|--:|--:|--:|",
    ]
    trace = Trace("translation", 30, 40)
    for num_tokens in (80, 341):
        prefix = random_prompt(Random(3), num_tokens)
        rates = []
        for policy in (ORCA_ORACLE, PAGED):

            def measure(rate: float, policy: Policy = policy, prefix: Sequence[int] = prefix) -> Outcome:
                return Run(policy, setting).outcome(poisson(trace, rate, num_requests, prefix))

            rates.append(sustained_rate(sweep(measure, setting.rates["Alpaca"][1])))
        lines.append(f"| {num_tokens} | {rates[0]:.2f} | {rates[1]:.2f} | {rates[1] / rates[0]:.2f} |")
    return "\n".join([*lines, "", f"Requests per second at {LATENCY_LIMIT_S} s/token.", ""])


def ablations(setting: Setting, num_requests: int) -> str:
    """Block size and way of preemption at a rate that keeps memory full (figures 18 and 19)."""
    lines = ["### Block size and preemption", "", "| block size | swap | recompute | auto |", "|---|--:|--:|--:|"]
    rate = 1.5 * setting.rates["ShareGPT"][1]
    for block_size in (8, 16, 32, 64, 128, 256):
        row = [
            f"{Run(PAGED, setting, block_size, way).outcome(poisson(SHAREGPT, rate, num_requests)).latency_s:.3f}"
            for way in ("swap", "recompute", "auto")
        ]
        lines.append(f"| {block_size} | {' | '.join(row)} |")
    return "\n".join([*lines, "", f"Normalised latency in s/token at {rate:.2f} req/s of ShareGPT lengths.", ""])


def demo_model(num_slots: int = 4096) -> Setting:
    """The demo model on this machine, with little enough memory that it is the limit."""
    loaded = load_model(EngineConfig())
    block_bytes = loaded.model.layout(16).block_bytes

    def runner(block_size: int) -> Runner:
        return ModelRunner(loaded.model, block_size, num_slots // block_size, num_slots // block_size, loaded.device)

    return Setting(
        "SmolLM2-135M here", num_slots, block_bytes // 16, runner, {"Alpaca": (2.0, 8.0), "ShareGPT": (0.2, 0.5)}
    )


SETTINGS: dict[str, Callable[[], Setting]] = {
    "opt-13b": partial(simulated, OPT_13B, {"ShareGPT": (1.5, 2.0), "Alpaca": (10.0, 30.0)}),
    "opt-175b": partial(simulated, OPT_175B, {"ShareGPT": (1.5, 2.5), "Alpaca": (8.0, 20.0)}),
    "smollm2": demo_model,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", choices=SETTINGS, default="opt-13b")
    parser.add_argument("--requests", type=int, default=500, help="of each run")
    parser.add_argument("--plots", type=Path, help="folder for PNG files")
    arguments = parser.parse_args()
    setting = SETTINGS[arguments.machine]()
    print(f"on {describe()}\n", flush=True)
    for trace in (SHAREGPT, ALPACA):
        comparison = compare(setting, trace, arguments.requests)
        print(comparison.table(), flush=True)
        if arguments.plots:
            plot(comparison, arguments.plots)
    if arguments.machine != "smollm2":
        print(shared_prefix(setting, arguments.requests), flush=True)
        print(ablations(setting, arguments.requests), flush=True)


if __name__ == "__main__":
    main()
