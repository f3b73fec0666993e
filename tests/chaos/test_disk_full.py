"""The store's disk is full in mid-answer: answers go on, somebody is told, and once there is room nothing is lost."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import redis

from tests.chatsrv.conftest import ServerThread, free_port, store_answers, wait_until
from tests.chatsrv.sockets import Socket, output_text, text_of
from tests.fakes import FakeEngine
from tests.machine import need_program

LONG = "0123456789" * 30


class SmallDisk:
    """A Redis that keeps a log, as docker-compose.yml has it, and may be refused to write more of it.

    A limit on the size of files stands for the disk: the kernel cuts the write that goes beyond and fails those after,
    as on a full disk, and no privilege is needed.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self.url = f"redis://127.0.0.1:{self._port}"
        self.client = redis.Redis(port=self._port)
        self.start()

    def start(self) -> None:
        options = ["--port", str(self._port), "--save", "", "--appendonly", "yes", "--appendfsync", "everysec"]
        command = [need_program("redis-server"), *options, "--dir", str(self._folder)]
        # Python ignores the signal that would kill who goes beyond the limit, and so shall Redis.
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, restore_signals=False)
        wait_until(lambda: store_answers(self.client))

    def fill(self) -> None:
        """Leave room for a few bytes, so that a write is cut in the middle."""
        self._limit(max(file.stat().st_size for file in self._folder.rglob("*.aof")) + 10)

    def clear(self) -> None:
        self._limit(resource.RLIM_INFINITY)

    def stop(self) -> None:
        self.client.shutdown(nosave=True)
        self._process.wait()

    def _limit(self, num_bytes: int) -> None:
        resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (num_bytes, resource.RLIM_INFINITY))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    folder = tmp_path / "redis"
    folder.mkdir()
    disk = SmallDisk(folder)
    yield disk
    disk.stop()
    disk.client.close()


def test_a_full_disk_stops_no_answer_and_loses_none(serve: Callable[..., ServerThread], disk: SmallDisk) -> None:
    engine = FakeEngine(delay_s=0.005)
    engine.enqueue(LONG)
    with serve(engine, redis_url=disk.url) as server, Socket(server) as socket:
        socket.create("x")
        events = [socket.recv() for _ in range(20)]
        disk.fill()
        events += socket.answer()
        response = events[-1]["response"]
        assert (text_of(events), response["status"], response["chatsrv"]) == (LONG, "completed", {"saved": False})
        assert httpx.get(f"{server.url}/readyz").json()["status"] == "degraded"
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        refusal = httpx.post(f"{server.url}/v1/conversations", json={})
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (503, "store_unavailable")
        disk.clear()
        wait_until(lambda: httpx.get(f"{server.url}/readyz").json()["status"] == "ok")
        socket.send("response.resume", response_id=response["id"])
        assert socket.answer()[:-1] == events[:-1]
    disk.stop()
    disk.start()
    with serve(engine, redis_url=disk.url) as server, Socket(server) as socket:
        socket.send("response.resume", response_id=response["id"])
        kept = socket.answer()
        assert kept[:-1] == events[:-1]
        assert output_text(kept[-1]["response"]) == LONG
        assert output_text(socket.ask("on", previous_response_id=response["id"])) == "You said: on"
    assert LONG in engine.submissions[-1].text
