"""Servers, the store and sockets die at random under load; each client must see its whole answer, once and in order.

``make chaos`` runs it longer.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import websockets
from websockets.asyncio.client import connect

from tests.chaos.proxy import Proxy
from tests.chaos.world import World
from tests.chatsrv.sockets import ENDS, text_of

SECONDS = float(os.environ.get("CHAOS_SECONDS", "10"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
NUM_CLIENTS = 24
SILENCE_S = 15.0
"""A client that hears nothing for so long comes back on another socket; a dead server's answers rest for 8 s."""

GIVE_UP_S = 120.0


class Answer:
    """What one client has seen of one response, over all of its sockets."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.events: list[dict[str, Any]] = []

    async def follow(self, url: str) -> None:
        """Ask, or resume, on one more socket; returns when it has broken or the answer has ended."""
        async with connect(url, max_queue=None, open_timeout=5, close_timeout=0.1) as socket:
            await socket.send(json.dumps(self._request()))
            while not self.is_ended:
                event = json.loads(await asyncio.wait_for(socket.recv(), SILENCE_S))
                if event["type"] == "error":
                    assert event["error"]["code"] in ("server_restarting", "store_unavailable", "response_not_found")
                    if event["error"]["code"] == "response_not_found":
                        self.events.clear()  # it died before anything of it was stored
                    return
                self.events.append(event)

    def _request(self) -> dict[str, Any]:
        if not self.events:
            return {"type": "response.create", "input": self.text, "temperature": 0}
        last, response_id = self.events[-1]["sequence_number"], self.events[0]["response"]["id"]
        return {"type": "response.resume", "response_id": response_id, "starting_after": last}

    @property
    def is_ended(self) -> bool:
        return bool(self.events) and self.events[-1]["type"] in ENDS

    def check(self) -> None:
        assert [event["sequence_number"] for event in self.events] == list(range(len(self.events)))
        assert [event["type"] for event in self.events if event["type"] in ENDS] == ["response.completed"]
        assert text_of(self.events) == f"You said: {self.text}"
        assert self.events[-1]["response"]["output"][0]["content"][0]["text"] == f"You said: {self.text}"


async def _client(number: int, url: str, stop: asyncio.Event, randomness: random.Random) -> int:
    """Ask one question after the other; returns how many."""
    num_asked = 0
    while not stop.is_set():
        words = " ".join(randomness.choices(["alpha", "beta", "γάμμα", "🦊"], k=randomness.randrange(1, 40)))
        answer = Answer(f"{number}.{num_asked} {words}")
        async with asyncio.timeout(GIVE_UP_S):
            while not answer.is_ended:
                with suppress(OSError, TimeoutError, websockets.WebSocketException):
                    await answer.follow(url)
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
