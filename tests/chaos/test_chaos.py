"""Servers, the store and sockets die at random under load; each client must see its whole answer, once and in order.

``make chaos`` runs it longer.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from contextlib import suppress
from pathlib import Path

import pytest
import websockets

from tests.chaos.answer import Answer
from tests.chaos.proxy import Proxy
from tests.chaos.world import World

SECONDS = float(os.environ.get("CHAOS_SECONDS", "10"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
NUM_CLIENTS = 24
GIVE_UP_S = 120.0
ERRORS = ("server_restarting", "store_unavailable", "response_not_found")


async def _client(number: int, url: str, stop: asyncio.Event, randomness: random.Random) -> int:
    """Ask one question after the other; returns how many."""
    num_asked = 0
    while not stop.is_set():
        words = " ".join(randomness.choices(["alpha", "beta", "γάμμα", "🦊"], k=randomness.randrange(1, 40)))
        answer = Answer(f"{number}.{num_asked} {words}")
        async with asyncio.timeout(GIVE_UP_S):
            while not answer.is_ended:
                with suppress(OSError, TimeoutError, websockets.WebSocketException):
                    await answer.follow(url, ERRORS)
                if not answer.is_ended:
                    await asyncio.sleep(0.1)
        answer.check()
        num_asked += 1
    return num_asked


async def _storm(world: World, randomness: random.Random) -> int:
    stop = asyncio.Event()
    async with Proxy(world.port, randomness) as proxy:
        url = f"ws://127.0.0.1:{proxy.port}/v1/responses"
        clients = [asyncio.create_task(_client(number, url, stop, randomness)) for number in range(NUM_CLIENTS)]
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and not any(client.done() for client in clients):
            await asyncio.sleep(randomness.uniform(0.5, 2.0))
            await world.hurt(proxy)
        stop.set()
        return sum(await asyncio.gather(*clients))


@pytest.mark.timeout(0)
def test_no_client_sees_a_gap_a_repetition_or_a_wrong_end(tmp_path: Path) -> None:
    randomness = random.Random(SEED)
    world = World(tmp_path, randomness)
    try:
        num_answers = asyncio.run(_storm(world, randomness))
        deadline = time.monotonic() + 60
        while world.left_running() and time.monotonic() < deadline:
            time.sleep(0.5)
        print(f"{num_answers} answers, {world.num_deaths} misfortunes, seed {SEED}")
        assert num_answers >= NUM_CLIENTS
        assert not world.left_running()
    finally:
        world.close()
