"""The engine beside its installed peers on this machine: the same offline load in turn, several rounds, medians.

    python -m bench.compare --rounds 3 --n 1,8,32,64

Rounds go around all contestants, so that a slow minute of the machine hits each of them alike. Prints a table of
output tokens per second and the ratio to the best peer at each batch size. ``bench/peers/setup.sh`` installs peers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.machine import describe, distribution_version
from bench.peers import Peer, default_folder, installed_peers

OURS = "chatsrv"
TIME_LIMIT_S = 1800


@dataclass(frozen=True, slots=True)
class Contestant:
    """A command that prints one JSON line per batch size."""

    name: str
    version: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)

    def run(self, load: Sequence[str]) -> dict[int, float]:
        """Output tokens per second by batch size; empty, with the reason on stderr, if the contestant breaks."""
        command = [*self.command, *load]
        done = subprocess.run(
            command, env=dict(self.environment), capture_output=True, text=True, timeout=TIME_LIMIT_S, check=False
        )
        if done.returncode != 0:
            print(f"{self.name} failed:\n{done.stderr[-2000:]}", file=sys.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"peer"')]
        return {line["n"]: line["out_tok_s"] for line in lines}


def ours(options: Sequence[str]) -> Contestant:
    python = Path(sys.executable)
    return Contestant(
        name=OURS,
        version=distribution_version(python, "torch") + " torch",
        command=(str(python), "-m", "bench.throughput", *options),
    )


def beside(peer: Peer) -> Contestant:
    script = Path(__file__).parent / "peers" / "throughput.py"
    return Contestant(
        name=peer.name,
        version=distribution_version(peer.python, peer.distribution),
        command=(str(peer.python), str(script), peer.name, "--dir", str(peer.folder)),
        environment=peer.environment(),
    )


def compete(contestants: Sequence[Contestant], load: Sequence[str], num_rounds: int) -> dict[str, dict[int, float]]:
    """Median rate of each contestant by batch size."""
    rates: dict[str, dict[int, list[float]]] = {one.name: defaultdict(list) for one in contestants}
    for round_number in range(1, num_rounds + 1):
        for contestant in contestants:
            print(f"round {round_number} of {num_rounds}: {contestant.name}", file=sys.stderr, flush=True)
            for count, rate in contestant.run(load).items():
                rates[contestant.name][count].append(rate)
    return {name: {count: median(seen) for count, seen in by_count.items()} for name, by_count in rates.items()}


def table(medians: Mapping[str, Mapping[int, float]]) -> str:
    """A Markdown table of rates, and below it our rate over the best peer's."""
    counts = sorted({count for rates in medians.values() for count in rates})
    lines = ["| out tok/s | " + " | ".join(f"n={count}" for count in counts) + " |", "|---|" + "--:|" * len(counts)]
    for name, rates in medians.items():
        cells = [f"{rates[count]:.0f}" if count in rates else "-" for count in counts]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    ratios = [_ratio(medians, count) for count in counts]
    lines.append(f"| {OURS} / best peer | " + " | ".join(ratios) + " |")
    return "\n".join(lines)


def _ratio(medians: Mapping[str, Mapping[int, float]], count: int) -> str:
    peers = [rates[count] for name, rates in medians.items() if name != OURS and count in rates]
    own = medians[OURS].get(count)
    return f"{own / max(peers):.2f}" if own and peers else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--n", default="1,8,32,64", help="batch sizes, with commas between")
    parser.add_argument("--input", default="128", help="tokens of each prompt")
    parser.add_argument("--output", default="128", help="tokens to generate after each")
    parser.add_argument("--peers", help="names with commas between; default: all that are installed")
    parser.add_argument("--dir", type=Path, default=default_folder(), help="where the peers are installed")
    arguments, ours_only = parser.parse_known_args()
    wanted = arguments.peers.split(",") if arguments.peers is not None else None
    peers = [peer for peer in installed_peers(arguments.dir) if wanted is None or peer.name in wanted]
    contestants = [ours(ours_only), *map(beside, peers)]
    load = ["--n", arguments.n, "--input", arguments.input, "--output", arguments.output]
    medians = compete(contestants, load, arguments.rounds)
    print(describe())
    print(", ".join(f"{one.name} ({one.version})" for one in contestants))
    print(f"{arguments.input} tokens in, {arguments.output} out, median of {arguments.rounds}\n")
    print(table(medians))


if __name__ == "__main__":
    main()
