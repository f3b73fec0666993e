"""Memory stays flat over many short answers of every kind. ``make chaos`` asks for longer."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from bench.resident import resident_bytes
from tests.chaos.nursery import ForgetfulEngine
from tests.chatsrv.conftest import RunningServer, ServerThread, wait_until
from tests.chatsrv.sockets import Socket

SECONDS = float(os.environ.get("CHAOS_SECONDS", "4"))
NUM_WARM_UP = 12
MAX_OBJECTS_A_ROUND = 0.5
"""Whatever a response or a socket would leave behind is more than one."""

MAX_GROWTH_BYTES = 16_000_000


def _round(server: RunningServer, client: httpx.Client) -> None:
    """One answer of each kind, whole, streamed, refused and cancelled; one socket, one conversation."""
    conversation = client.post("/v1/conversations", json={}).json()["id"]
    with Socket(server) as socket:
        response = socket.ask("x", conversation=conversation)
        socket.ask("y", previous_response_id=response["id"], stream_id="a")
        socket.ask("z", store=False)
        socket.create("x", temperature=-1)
        assert socket.recv()["type"] == "error"
        socket.create("long " * 20)
        socket.send("response.cancel", response_id=socket.recv()["response"]["id"])
        socket.answer()
        socket.send("response.resume", response_id=response["id"])
        socket.answer()
    assert "completed" in client.post("/v1/responses", json={"input": "x", "stream": True}).text
    assert client.post("/v1/responses", json={"input": "x", "background": True}).status_code == 200
    messages: list[Any] = [{"role": "user", "content": "x"}]
    assert client.post("/v1/chat/completions", json={"messages": messages}).status_code == 200
    assert "[DONE]" in client.post("/v1/completions", json={"prompt": "x", "n": 2, "stream": True}).text
    assert client.get("/v1/responses/resp_unknown").status_code == 404
    assert client.delete(f"/v1/conversations/{conversation}").status_code == 200


def _num_objects() -> int:
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.timeout(SECONDS + 120)
def test_nothing_is_left_behind(serve: Callable[..., ServerThread], redis_server: str) -> None:
    with (
        serve(ForgetfulEngine(delay_s=0.0005), redis_url=redis_server) as server,
        httpx.Client(base_url=server.url, timeout=30) as client,
    ):
        for _ in range(NUM_WARM_UP):
            _round(server, client)
        wait_until(lambda: server.engine.running == 0)
        num_objects, num_bytes = _num_objects(), resident_bytes()
        num_rounds, end = 0, time.monotonic() + SECONDS
        while time.monotonic() < end:
            _round(server, client)
            num_rounds += 1
        print(
            f"{num_rounds} rounds; {_num_objects() - num_objects} objects and {resident_bytes() - num_bytes} bytes more"
        )
        wait_until(lambda: _num_objects() - num_objects < MAX_OBJECTS_A_ROUND * num_rounds)
        assert resident_bytes() - num_bytes < MAX_GROWTH_BYTES
