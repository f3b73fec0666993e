"""The time to the first token of a priority request, on an idle server and beside streams of the lowest class.

    python -m bench.priority --streams 32 --rounds 20

Starts ``chatsrv serve`` with the demo model and room for just so many sequences, so that the streams fill it. The goal:
beside them the 95th percentile is at most twice that on the idle server, and one step.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from dataclasses import replace
from random import Random

from bench.chat_load import Answer, Load, SocketSession, Target, open_socket, percentile
from bench.history import words
from bench.machine import describe
from bench.own_server import OwnServer

NUM_WORDS = 40
SHORT = Load("smollm2", 1, 4, num_system_words=0, num_user_words=0, ignore_eos=True, seed=0, tier="priority")
ENDLESS = replace(SHORT, max_tokens=4000, tier="flex")


async def ask(target: Target, load: Load, source: Random, answer: Answer) -> None:
    async with open_socket(target) as socket:
        await SocketSession(socket, load).ask(words(source, NUM_WORDS), answer)


async def first_tokens_s(target: Target, source: Random, num_rounds: int) -> list[float]:
    """Times to the first token of priority requests, one after the other."""
    answers = []
    for _ in range(num_rounds):
        answers.append(Answer())
        await ask(target, SHORT, source, answers[-1])
    return [answer.ttft_s for answer in answers]


async def measure(target: Target, num_streams: int, num_rounds: int) -> None:
    source = Random(1)
    await first_tokens_s(target, source, 3)  # warms everything up
    idle_s = percentile(await first_tokens_s(target, source, num_rounds), 0.95)
    streams = [Answer() for _ in range(num_streams)]
    tasks = [asyncio.create_task(ask(target, ENDLESS, source, stream)) for stream in streams]
    while not all(stream.stamps for stream in streams):
        await first_tokens_s(target, source, 1)
    loaded_s = percentile(await first_tokens_s(target, source, num_rounds), 0.95)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    step_s = percentile([gap for stream in streams for gap in stream.gaps_s], 0.5)
    times_s = {"idle_ttft_p95_ms": idle_s, "loaded_ttft_p95_ms": loaded_s, "step_p50_ms": step_s}
    line = {name: round(1e3 * seconds, 1) for name, seconds in times_s.items()}
    print(json.dumps({**line, "share_of_goal": round(loaded_s / (2 * idle_s + step_s), 2)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    print(f"on {describe()}", flush=True)
    with OwnServer(["--max-num-seqs", str(arguments.streams)]) as server:
        asyncio.run(measure(Target(server.base), arguments.streams, arguments.rounds))


if __name__ == "__main__":
    main()
