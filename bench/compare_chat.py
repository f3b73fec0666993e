"""The server beside its installed peers on this machine: the same chats over SSE in turn, several rounds, medians.

    python -m bench.compare_chat --rounds 3 --sessions 1,8,16

Every contestant is started, put under load and ended again in each round. Prints a table of output tokens per second
and of the median time to the first token, each with our ratio to the best peer. ``bench/peers/setup.sh`` brings peers.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import httpx

from bench.chat_load import Load, Target, converse_all
from bench.compare import OURS
from bench.machine import describe, distribution_version
from bench.own_server import OwnServer
from bench.peers import Peer, default_folder, installed_peers

START_LIMIT_S = 600
STOP_LIMIT_S = 60

Rates = dict[int, tuple[float, float]]
"""By number of sessions: output tokens per second, and the median time to the first token in seconds."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A server; ``start`` runs it and gives its ``…/v1``."""

    name: str
    version: str
    start: Callable[[], AbstractContextManager[str]]


@contextmanager
def own_server() -> Iterator[str]:
    with OwnServer() as server:
        yield server.base


@contextmanager
def peer_server(peer: Peer) -> Iterator[str]:
    """Raises:
    RuntimeError: it ended, or took too long, before it answered.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = (peer.folder / f"{peer.name}-server.log").open("wb")
    with (
        log,
        subprocess.Popen(peer.serve_command(port), env=dict(peer.environment()), stdout=log, stderr=log) as process,
    ):
        base = f"http://127.0.0.1:{port}/v1"
        try:
            _wait_until_ready(base, process, log.name)
            yield base
        finally:
            process.terminate()
            try:
                process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _wait_until_ready(base: str, process: subprocess.Popen[bytes], log: str) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if httpx.get(f"{base}/models").status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    raise RuntimeError(f"the server does not answer; its log is {log}")


def run(contestant: Contestant, session_counts: Sequence[int], load: Load) -> Rates:
    """One round; empty, with the reason on stderr, if the contestant breaks."""
    rates: Rates = {}
    try:
        with contestant.start() as base:
            target = Target(base, "sse")
            asyncio.run(converse_all(1, target, load))  # warms up
            for count in session_counts:
                line = asyncio.run(converse_all(count, target, load))
                rates[count] = float(str(line["out_tok_s"])), float(str(line["ttft_p50"]))
    except (RuntimeError, OSError, httpx.HTTPError) as error:
        print(f"{contestant.name} failed: {error}", file=sys.stderr)
    return rates


def compete(contestants: Sequence[Contestant], counts: Sequence[int], load: Load, num_rounds: int) -> dict[str, Rates]:
    """Medians of each contestant."""
    seen: dict[str, dict[int, list[tuple[float, float]]]] = {one.name: defaultdict(list) for one in contestants}
    for round_number in range(1, num_rounds + 1):
        for contestant in contestants:
            print(f"round {round_number} of {num_rounds}: {contestant.name}", file=sys.stderr, flush=True)
            for count, rates in run(contestant, counts, load).items():
                seen[contestant.name][count].append(rates)
    return {
        name: {count: (median(r[0] for r in rounds), median(r[1] for r in rounds)) for count, rounds in of_one.items()}
        for name, of_one in seen.items()
    }


def table(medians: Mapping[str, Rates]) -> str:
    """Markdown: rates and times, and below them ours over those of the best peer."""
    counts = sorted({count for rates in medians.values() for count in rates})
    heads = [f"{count} sessions" for count in counts]
    lines = ["| tok/s · TTFT p50 | " + " | ".join(heads) + " |", "|---|" + "--:|" * len(counts)]
    for name, rates in medians.items():
        cells = [f"{rates[count][0]:.0f} · {rates[count][1]:.2f} s" if count in rates else "-" for count in counts]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    ratios = " | ".join(_ratios(medians, count) for count in counts)
    return "\n".join([*lines, f"| {OURS} / best peer | {ratios} |"])


def _ratios(medians: Mapping[str, Rates], count: int) -> str:
    peers = [rates[count] for name, rates in medians.items() if name != OURS and count in rates]
    own = medians[OURS].get(count)
    if own is None or not peers:
        return "-"
    return f"{own[0] / max(rate for rate, _ in peers):.2f} · {own[1] / min(ttft_s for _, ttft_s in peers):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sessions", default="1,8,16", help="how many at once, with commas between")
    parser.add_argument("--turns", type=int, default=4, help="of each session")
    parser.add_argument("--max-tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--peers", help="names with commas between; default: all that are installed and serve")
    parser.add_argument("--dir", type=Path, default=default_folder(), help="where the peers are installed")
    arguments = parser.parse_args()
    wanted = arguments.peers.split(",") if arguments.peers is not None else None
    peers = [peer for peer in installed_peers(arguments.dir) if peer.is_server and (not wanted or peer.name in wanted)]
    python = Path(sys.executable)
    contestants = [Contestant(OURS, distribution_version(python, "torch") + " torch", own_server)]
    for peer in peers:
        version = distribution_version(peer.python, peer.distribution)
        contestants.append(Contestant(peer.name, version, lambda peer=peer: peer_server(peer)))  # type: ignore[misc]
    load = Load("smollm2", arguments.turns, arguments.max_tokens, 150, 40, ignore_eos=False, seed=1)
    counts = [int(count) for count in arguments.sessions.split(",")]
    medians = compete(contestants, counts, load, arguments.rounds)
    print(describe())
    print(", ".join(f"{one.name} ({one.version})" for one in contestants))
    print(f"{arguments.turns} turns of {arguments.max_tokens} tokens, median of {arguments.rounds}\n")
    print(table(medians))


if __name__ == "__main__":
    main()
