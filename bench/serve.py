"""Chat load on a server of its own: speed as its clients see it, and what serving costs beside the model.

    python -m bench.serve --sessions 1,8,16,64 --turns 4 --max-tokens 64 [--sse] [--idle 2000]

Starts ``chatsrv serve`` with the demo model; flags that are not listed below go there. Prints one JSON line for each
number of sessions. ``--base http://HOST:PORT/v1`` measures a server that runs already; with ``--sse``, which speaks
OpenAI chat completions, one of any make.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace

from bench.chat_load import Load, Target, converse_all, open_socket
from bench.own_server import OwnServer, Spent

SOCKETS_AT_ONCE = 100


def costs(before: Spent, after: Spent, line: dict[str, object]) -> dict[str, object]:
    """What a load cost the server beside the model's work.

    ``loop_share`` is the part of the time that the event loop's thread computed: the engine's scheduling, events,
    sockets and the store; ``server_share`` is the same without the engine, and ``server_us_per_token`` what of it comes
    to each token of output.
    """
    num_tokens, wall_s = line["completion"], line["wall_s"]
    assert isinstance(num_tokens, int)
    assert isinstance(wall_s, float)
    loop_s = after.loop_cpu_s - before.loop_cpu_s
    server_s = loop_s - (after.engine_s - before.engine_s)
    num_commands = after.num_commands - before.num_commands - 1
    return {
        "redis_commands_per_token": round(num_commands / num_tokens, 3),
        "loop_share": round(loop_s / wall_s, 4),
        "server_share": round(server_s / wall_s, 4),
        "server_us_per_token": round(1e6 * server_s / num_tokens, 1),
    }


async def idle_bytes(server: OwnServer, target: Target, num_sockets: int) -> int:
    """By how much the server grows when so many clients connect and say nothing."""
    before = server.resident_bytes()
    async with AsyncExitStack() as sockets:
        for start in range(0, num_sockets, SOCKETS_AT_ONCE):
            count = min(SOCKETS_AT_ONCE, num_sockets - start)
            await asyncio.gather(*(sockets.enter_async_context(open_socket(target)) for _ in range(count)))
        return server.resident_bytes() - before


async def measure_own(target: Target, load: Load, session_counts: list[int], num_idle: int, options: list[str]) -> None:
    with OwnServer(options) as server:
        target = replace(target, base=server.base)
        await converse_all(1, target, replace(load, num_turns=1, max_tokens=8))  # warms everything up
        for count in session_counts:
            before = server.spent()
            line = await converse_all(count, target, load)
            print_line(target, {**line, **costs(before, server.spent(), line)})
        if num_idle:
            grown = await idle_bytes(server, target, num_idle)
            print(json.dumps({"idle_sockets": num_idle, "idle_mb": round(grown / 1e6, 1)}), flush=True)


async def measure_other(target: Target, load: Load, session_counts: list[int]) -> None:
    for count in session_counts:
        print_line(target, await converse_all(count, target, load))


def print_line(target: Target, line: dict[str, object]) -> None:
    print(json.dumps({"transport": target.transport, **line}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="measure this server instead")
    parser.add_argument("--key", help="API key, where the server wants one")
    parser.add_argument("--sse", action="store_true", help="chat completions over SSE instead of WebSockets")
    parser.add_argument("--sessions", default="1,8,16,64", help="how many at once, with commas between")
    parser.add_argument("--turns", type=int, default=4, help="turns of each session")
    parser.add_argument("--max-tokens", type=int, default=64, help="tokens of each answer")
    parser.add_argument("--system-words", type=int, default=150)
    parser.add_argument("--user-words", type=int, default=40)
    parser.add_argument("--ignore-eos", action="store_true", help="every answer has exactly --max-tokens")
    parser.add_argument("--model", default="smollm2", help="name of the model, as the server knows it")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--idle", type=int, default=0, help="also measure the memory of so many idle sockets")
    arguments, options = parser.parse_known_args()
    load = Load(
        model=arguments.model,
        num_turns=arguments.turns,
        max_tokens=arguments.max_tokens,
        num_system_words=arguments.system_words,
        num_user_words=arguments.user_words,
        ignore_eos=arguments.ignore_eos,
        seed=arguments.seed,
    )
    counts = [int(count) for count in arguments.sessions.split(",")]
    target = Target(arguments.base or "", "sse" if arguments.sse else "socket", arguments.key)
    if arguments.base is None:
        options += ["--model", arguments.model]
        asyncio.run(measure_own(target, load, counts, arguments.idle, options))
    elif options:
        parser.error(f"unknown: {' '.join(options)}")
    else:
        asyncio.run(measure_other(target, load, counts))


if __name__ == "__main__":
    main()
