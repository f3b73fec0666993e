"""A thousand sockets connect at once: each is served or refused, none hangs, and nothing is left of them.

``make chaos`` lets more crowds come.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import resource
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from chatsrv.limits import DEFAULT_LIMITS
from chatsrv.new_key import entry
from tests.chaos.world import World
from tests.chatsrv.conftest import wait_until
from tests.chatsrv.sockets import ENDS
from tests.machine import missing

NUM_SOCKETS = 1000
NUM_MORE_CROWDS = int(float(os.environ.get("CHAOS_SECONDS", "0")) / 60)
ROOMY, TIGHT = "roomy-key", "tight-key"
MAX_GROWTH_BYTES = 12_000_000
"""A thousand sockets that were not let go would hold 16 MB and more."""


@pytest.fixture
def open_files() -> Iterator[None]:
    """As many as the crowd needs, in this process and in those that it starts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * NUM_SOCKETS:
        missing(f"a limit of {2 * NUM_SOCKETS} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2 * NUM_SOCKETS), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def _visit(url: str, key: str, everybody: asyncio.Barrier) -> str:
    """Connect, wait for all others, ask, and leave when all others have their answer; returns what came of it."""
    try:
        socket = await connect(url, additional_headers={"Authorization": f"Bearer {key}"}, open_timeout=60)
    except InvalidStatus as error:
        await everybody.wait()
        await everybody.wait()
        return f"refused with {error.response.status_code}"
    async with socket:
        await everybody.wait()
        await socket.send(json.dumps({"type": "response.create", "input": "x", "max_output_tokens": 1}))
        event = {"type": ""}
        while event["type"] not in ENDS:
            event = json.loads(await socket.recv())
        await everybody.wait()
    return f"answered with {event['status']}" if event["type"] == "error" else event["type"]


async def _crowd(url: str, key: str) -> Counter[str]:
    async with asyncio.timeout(100):
        everybody = asyncio.Barrier(NUM_SOCKETS)
        return Counter(await asyncio.gather(*(_visit(url, key, everybody) for _ in range(NUM_SOCKETS))))


def _gauges(url: str) -> dict[str, float]:
    text = httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {ROOMY}"}).text
    return {one.name: one.value for family in text_string_to_metric_families(text) for one in family.samples}


def _gauges_when_empty(url: str) -> dict[str, float]:
    wait_until(lambda: _gauges(url)["chatsrv_sockets"] == 0)
    return _gauges(url)


@pytest.mark.timeout(0)
@pytest.mark.usefixtures("open_files")
def test_a_crowd_comes_and_goes(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    limits = f"max_connections = {2 * NUM_SOCKETS}\nmax_running = {NUM_SOCKETS}\nmax_queued = {NUM_SOCKETS}\n"
    keys.write_text(entry("ada", "admin", ROOMY) + limits + entry("bob", "user", TIGHT))
    world = World(tmp_path, random.Random(0), num_servers=1, api_keys=str(keys))
    try:
        url = f"127.0.0.1:{world.port()}"
        wait_until(world.is_ready, 60)
        sockets = f"ws://{url}/v1/responses"
        assert asyncio.run(_crowd(sockets, ROOMY)) == {"response.incomplete": NUM_SOCKETS}
        before = _gauges_when_empty(f"http://{url}")

        outcomes = asyncio.run(_crowd(sockets, TIGHT))
        limit = DEFAULT_LIMITS.max_connections
        assert limit is not None
        assert outcomes.pop("refused with 429") == NUM_SOCKETS - limit
        assert outcomes["response.incomplete"] >= 1
        assert outcomes["response.incomplete"] + outcomes["answered with 429"] == limit

        for _ in range(NUM_MORE_CROWDS):
            assert asyncio.run(_crowd(sockets, ROOMY)) == {"response.incomplete": NUM_SOCKETS}
        after = _gauges_when_empty(f"http://{url}")
        assert after["process_open_fds"] <= before["process_open_fds"] + 2
        assert after["process_resident_memory_bytes"] - before["process_resident_memory_bytes"] < MAX_GROWTH_BYTES
    finally:
        world.close()
