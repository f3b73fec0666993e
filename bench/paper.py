"""The PagedAttention paper's comparison with this engine: its baselines, its traces, its figures.

    python -m bench.paper [--machine opt-13b|opt-175b|smollm2] [--seconds 600] [--requests 60] [--plots FOLDER]

Every system runs the engine's own scheduler; the baselines differ in how they give out memory and when requests may
join. ``opt-13b`` and ``opt-175b`` run against a simulated clock (``bench.cost_model``): requests arrive at random
(Poisson), at rates that rise until a system no longer keeps up. ``smollm2`` runs every forward pass of the demo model;
all requests are there at once, and the seconds are this machine's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from random import Random

from bench.baselines import ORCA_ORACLE, PAGED, POLICIES, Policy
from bench.cost_model import OPT_13B, OPT_175B
from bench.lengths import ALPACA, SHAREGPT, Trace
from bench.machine import describe
from bench.simulation import Runner, random_prompt
from bench.trial import (
    LATENCY_LIMIT_S,
    Arrival,
    Outcome,
    Points,
    Setting,
    Trial,
    poisson,
    simulated,
    sustained_rate,
    sweep,
)
from engine.config import EngineConfig
from engine.loading import load_model
from engine.model_runner import ModelRunner

WIDTHS = (2, 4, 6)
MIN_ARRIVALS = 20
CHAT_LEN = 1024
"""The chatbot's history is cut to its last tokens, this many."""

RATES = f"Requests per second at {LATENCY_LIMIT_S} s/token."


@dataclass(frozen=True, slots=True)
class Comparison:
    """All systems on one machine and trace: points of (rate, outcome), and the outcome at the busy rate, by system."""

    title: str
    busy_rate: float
    points: dict[str, Points] = field(default_factory=dict)
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
            lines.append(f"| {name} | {rate:.2f} | {best / rate:.1f} | {at.num_running:.1f} | {_memory_shares(at)} |")
        return "\n".join([*lines, ""])


def _memory_shares(at: Outcome) -> str:
    return " | ".join(f"{100 * share:.1f}%" for share in (at.filled, at.to_be_filled, at.never_filled))


def arrivals_at(
    rate: float, trace: Trace, seconds: float, prefix: Sequence[int] = (), n: int = 1, is_beam: bool = False
) -> list[Arrival]:
    """Requests that arrive for so many seconds, or for less where answers are shorter, so that trials are alike.

    A trial of few requests would end before a system that cannot keep up has a long queue.
    """
    count = round(rate * seconds * trace.mean_output / SHAREGPT.mean_output)
    return poisson(trace, rate, max(count, MIN_ARRIVALS), prefix, n, is_beam)


def compare(setting: Setting, trace: Trace, seconds: float) -> Comparison:
    """Each system's sweep begins where the one before, which sustains less, has ended."""
    rate, busy_rate = setting.rates[trace.name]
    comparison = Comparison(f"{setting.name}, {trace.name} lengths", busy_rate)
    for policy in POLICIES:

        def measure(rate: float, policy: Policy = policy) -> Outcome:
            return Trial(policy, setting).outcome(arrivals_at(rate, trace, seconds))

        points = sweep(measure, rate)
        rate = points[-2][0]
        comparison.points[policy.name] = points
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


Load = Callable[[float], list[Arrival]]
"""Arrivals at so many per second."""


def race(title: str, column: str, loads: Mapping[str, Load], setting: Setting) -> str:
    """The rates that Orca (Oracle) and chatsrv sustain under several loads."""
    lines = [f"### {title}", "", f"| {column} | {ORCA_ORACLE.name} | {PAGED.name} | × |", "|---|--:|--:|--:|"]
    for name, load in loads.items():
        rates: list[float] = []
        for policy in (ORCA_ORACLE, PAGED):

            def measure(rate: float, policy: Policy = policy, load: Load = load) -> Outcome:
                return Trial(policy, setting).outcome(load(rate))

            rates.append(sustained_rate(sweep(measure, rates[0] if rates else setting.rates["ShareGPT"][1])))
        lines.append(f"| {name} | {rates[0]:.2f} | {rates[1]:.2f} | {rates[1] / rates[0]:.2f} |")
    return "\n".join([*lines, "", RATES, ""])


def shared_prefix(setting: Setting, seconds: float) -> str:
    """Short translations after the same examples, one or five of them (figure 16 of the paper)."""
    trace = Trace("translation", 30, 40)
    loads = {
        f"{num_tokens} tokens": partial(
            arrivals_at, trace=trace, seconds=seconds, prefix=random_prompt(Random(3), num_tokens)
        )
        for num_tokens in (80, 341)
    }
    return race("A prefix that all requests share", "prefix", loads, setting)


def several_answers(setting: Setting, seconds: float) -> str:
    """Parallel samples and beams (figure 14). Copies that Orca makes of beams are free here."""
    loads = {
        f"{kind}, {n}": partial(arrivals_at, trace=ALPACA, seconds=seconds, n=n, is_beam=kind == "beams")
        for kind in ("samples", "beams")
        for n in WIDTHS
    }
    return race("Several answers to one prompt, Alpaca lengths", "answers", loads, setting)


def chatbot(setting: Setting, seconds: float) -> str:
    """Conversations of ShareGPT lengths; nothing is kept between their turns, as in the paper (figure 17)."""
    return race("Chatbot", "history", {f"up to {CHAT_LEN}": partial(chat_arrivals, seconds=seconds)}, setting)


def chat_arrivals(rate: float, seconds: float) -> list[Arrival]:
    """Each arrival is the next turn of a conversation of up to 8, with what its history leaves of ``CHAT_LEN``."""
    source = Random(4)
    arrivals = []
    for arrival in arrivals_at(rate, SHAREGPT, seconds):
        earlier = SHAREGPT.samples(source.randrange(8), seed=source.randrange(1 << 30))
        num_input = min(CHAT_LEN, len(arrival.prompt) + sum(map(sum, earlier)))
        arrivals.append(replace(arrival, prompt=random_prompt(source, num_input)))
    return arrivals


def ablations(setting: Setting, seconds: float) -> str:
    """Block size and way of preemption at rates that keep memory full (figures 18 and 19)."""
    rates = {trace: 1.25 * setting.rates[trace.name][1] for trace in (SHAREGPT, ALPACA)}
    arrivals = {trace: arrivals_at(rate, trace, seconds) for trace, rate in rates.items()}
    lines = [
        "### Block size and preemption",
        "",
        "| block size | ShareGPT: swap | recompute | auto | Alpaca: auto |",
        "|---|--:|--:|--:|--:|",
    ]
    for block_size in (8, 16, 32, 64, 128, 256):
        cells = [
            Trial(PAGED, setting, block_size, way).outcome(arrivals[trace]).latency_s
            for trace, way in ((SHAREGPT, "swap"), (SHAREGPT, "recompute"), (SHAREGPT, "auto"), (ALPACA, "auto"))
        ]
        lines.append(f"| {block_size} | " + " | ".join(f"{latency_s:.3f}" for latency_s in cells) + " |")
    where = " and ".join(f"{rate:g} req/s of {trace.name} lengths" for trace, rate in rates.items())
    return "\n".join([*lines, "", f"Normalised latency in s/token at {where}.", ""])


def saturated(setting: Setting, trace: Trace, num_requests: int) -> str:
    """Everything arrives at once: what each system makes of the same memory."""
    lines = [
        f"### {setting.name}, {num_requests} requests of {trace.name} lengths at once, {setting.num_slots} slots",
        "",
        "| system | out tok/s | batch | filled | to be filled | never filled |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    arrivals = [Arrival(0.0, one.prompt, one.num_output) for one in poisson(trace, 1.0, num_requests)]
    num_tokens = sum(arrival.num_output for arrival in arrivals)
    for policy in POLICIES:
        at = Trial(policy, setting).outcome(arrivals)
        lines.append(f"| {policy.name} | {num_tokens / at.total_s:.0f} | {at.num_running:.1f} | {_memory_shares(at)} |")
    return "\n".join([*lines, ""])


def demo_model(num_slots: int = 4096) -> Setting:
    """The demo model on this machine, with little enough memory that it is the limit."""
    loaded = load_model(EngineConfig())
    block_bytes = loaded.model.layout(16).block_bytes

    def runner(block_size: int) -> Runner:
        layout, num_blocks = loaded.model.layout(block_size), num_slots // block_size
        return ModelRunner(loaded.model, layout, num_blocks, num_blocks, loaded.device)

    return Setting("SmolLM2-135M here", num_slots, block_bytes // 16, runner, {})


SIMULATED = {
    "opt-13b": simulated(OPT_13B, {"ShareGPT": (0.2, 2.0), "Alpaca": (1.0, 30.0)}),
    "opt-175b": simulated(OPT_175B, {"ShareGPT": (0.2, 2.5), "Alpaca": (1.0, 20.0)}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", choices=(*SIMULATED, "smollm2"), default="opt-13b")
    parser.add_argument("--seconds", type=float, default=600, help="for which requests arrive, on the simulated clock")
    parser.add_argument("--requests", type=int, default=60, help="for the demo model")
    parser.add_argument("--plots", type=Path, help="folder for PNG files")
    arguments = parser.parse_args()
    print(f"on {describe()}\n", flush=True)
    if arguments.machine == "smollm2":
        print(saturated(demo_model(), SHAREGPT, arguments.requests), flush=True)
        return
    setting = SIMULATED[arguments.machine]
    for trace in (SHAREGPT, ALPACA):
        comparison = compare(setting, trace, arguments.seconds)
        print(comparison.table(), flush=True)
        if arguments.plots:
            plot(comparison, arguments.plots)
    for ablation in (ablations, shared_prefix, chatbot, several_answers):
        print(ablation(setting, arguments.seconds), flush=True)


if __name__ == "__main__":
    main()
