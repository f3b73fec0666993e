"""The time to the first token of a later turn: it grows with the turn's new words, and not with the history before it.

    python -m bench.history --history 200,1000,3000,6000 --new 20,200,800 --rounds 5

Starts ``chatsrv serve`` with the demo model. A conversation begins with a message of so many words, which is answered;
its next turn, of so many new words, is measured. Prints one JSON line for each pair: tokens that were in the cache, new
tokens, and the median over rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from itertools import product
from random import Random
from statistics import median

from bench.chat_load import WORDS, Answer, Load, SocketSession, Target, open_socket
from bench.machine import describe
from bench.own_server import OwnServer


def words(source: Random, count: int) -> str:
    """So many words, which are about as many tokens."""
    return " ".join(source.choice(WORDS) for _ in range(count))


async def later_turn(target: Target, source: Random, num_history: int, num_new: int) -> Answer:
    """A turn of ``num_new`` words after a history of ``num_history`` words that was computed before."""
    load = Load("smollm2", 2, 2, num_system_words=0, num_user_words=0, ignore_eos=True, seed=0)
    async with open_socket(target) as socket:
        session = SocketSession(socket, load)
        await session.ask(words(source, num_history))
        return await session.ask(words(source, num_new))


async def measure(target: Target, histories: list[int], news: list[int], num_rounds: int) -> None:
    source = Random(1)
    await later_turn(target, source, 20, 20)  # warms everything up
    found: dict[tuple[int, int], list[Answer]] = {pair: [] for pair in product(news, histories)}
    for _ in range(num_rounds):
        for (num_new, num_history), answers in found.items():
            answers.append(await later_turn(target, source, num_history, num_new))
    for answers in found.values():
        one = answers[0]
        ttft_ms = 1e3 * median(answer.ttft_s for answer in answers)
        line = {"history": one.num_cached, "new": one.num_prompt - one.num_cached, "ttft_ms": round(ttft_ms, 1)}
        print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", default="200,1000,3000,6000", help="words before, with commas between")
    parser.add_argument("--new", default="20,200,800", help="words of the turn that is measured")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    histories = [int(count) for count in arguments.history.split(",")]
    news = [int(count) for count in arguments.new.split(",")]
    print(f"on {describe()}", flush=True)
    with OwnServer() as server:
        asyncio.run(measure(Target(server.base), histories, news, arguments.rounds))


if __name__ == "__main__":
    main()
