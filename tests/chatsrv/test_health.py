"""Health tells of what a restart would help, readiness of everything."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import torch

from chatsrv import health
from chatsrv.server import Server
from engine import Engine, EngineConfig
from engine.loading import LoadedModel, load_model
from tests.chatsrv.conftest import RunningServer, ServerThread, make_settings, wait_until
from tests.chatsrv.test_store_outage import Outage, outage  # noqa: F401 - a fixture
from tests.engine.models.tiny import save_tiny
from tests.fakes import FakeEngine, FakeHealth


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (FakeHealth(), 200),
        (FakeHealth(busy=True, last_step_age_s=60.0), 200),  # slow is not dead
        (FakeHealth(busy=False, last_step_age_s=9999.0), 200),  # idle is not dead
        (FakeHealth(busy=True, last_step_age_s=121.0), 503),
        (FakeHealth(alive=False), 503),
    ],
)
def test_healthy_means_that_work_advances(server: RunningServer, state: FakeHealth, status: int) -> None:
    server.engine.health_now = state
    assert httpx.get(f"{server.url}/healthz").status_code == status
    assert httpx.get(f"{server.url}/readyz").status_code == status


def test_ready_names_the_parts(server: RunningServer) -> None:
    assert httpx.get(f"{server.url}/readyz").json() == {"status": "ok", "engine": "ok", "store": "ok"}


@pytest.mark.parametrize("name", ["store journal", "store heartbeat", "tend responses", "compute for other servers"])
def test_a_task_that_died_makes_the_server_unhealthy(serve: Callable[..., ServerThread], name: str) -> None:
    with serve(FakeEngine()) as server:
        assert httpx.get(f"{server.url}/healthz").json() == {"status": "ok"}
        (task,) = [task for task in asyncio.all_tasks(server.loop) if task.get_name() == name]
        server.loop.call_soon_threadsafe(task.cancel)
        wait_until(task.done)
        answer = httpx.get(f"{server.url}/healthz")
        assert (answer.status_code, answer.json()) == (503, {"status": "task_died"})
        assert httpx.get(f"{server.url}/readyz").json()["status"] == "degraded"


def test_a_store_that_hangs_is_told_before_anybody_tires_of_waiting(
    serve: Callable[..., ServerThread],
    outage: Outage,  # noqa: F811
) -> None:
    with serve(FakeEngine(), redis_url=outage.url) as server:
        pid = outage.client.info()["process_id"]
        os.kill(pid, signal.SIGSTOP)
        try:
            answer = httpx.get(f"{server.url}/readyz", timeout=4)  # of the health check in the image
            assert (answer.status_code, answer.json()["store"]) == (200, "unreachable")
            assert httpx.get(f"{server.url}/healthz").status_code == 200
        finally:
            os.kill(pid, signal.SIGCONT)


class Model:
    """A model whose steps can be made to last, or never to end."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.is_wedged = False
        self.pause_s = 0.0
        self.entered = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        self.entered.set()
        while self.is_wedged:
            pass
        time.sleep(self.pause_s)
        logits: torch.Tensor = self._model.compute_logits(hidden)
        return logits


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder, "llama")
    return folder


class RealServer:
    """A server with a real engine in the test's own loop."""

    def __init__(self, folder: Path, data_dir: Path) -> None:
        config = EngineConfig(model=str(folder), dtype="float32", num_blocks=40, num_swap_blocks=0)
        self.engine = Engine(config, self._load)
        self.server = Server(make_settings(data_dir), lambda: self.engine)
        self.model: Model
        self.client: httpx.AsyncClient

    def _load(self, config: EngineConfig) -> LoadedModel:
        loaded = load_model(config)
        self.model = Model(loaded.model)
        object.__setattr__(loaded, "model", self.model)
        return loaded

    async def ask(self, max_tokens: int = 4) -> int:
        body = {"prompt": [5, 6, 7], "max_tokens": max_tokens, "ignore_eos": True}
        return (await self.client.post("/v1/completions", json=body)).status_code

    async def statuses(self) -> tuple[int, int]:
        return tuple([(await self.client.get(path)).status_code for path in ("/healthz", "/readyz")])  # type: ignore[return-value]

    async def wait_for(self, status: int) -> None:
        async with asyncio.timeout(30):
            while await self.statuses() != (status, status):  # noqa: ASYNC110 - health is asked, it does not call
                await asyncio.sleep(0.02)


@pytest_asyncio.fixture
async def real(folder: Path, tmp_path: Path) -> AsyncIterator[RealServer]:
    real = RealServer(folder, tmp_path)
    running = asyncio.create_task(real.server.run())
    await real.server.ready()
    async with httpx.AsyncClient(base_url=real.server.url, timeout=60) as client:
        real.client = client
        yield real
    real.model.is_wedged = False
    real.server.stop()
    await running


async def test_a_wedged_model_thread_is_unhealthy_and_the_server_still_says_so(
    real: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "MAX_STEP_AGE_S", 0.5)
    assert await real.statuses() == (200, 200)
    real.model.is_wedged = True
    asking = asyncio.create_task(real.ask())
    await asyncio.to_thread(real.model.entered.wait, 30)
    await real.wait_for(503)
    real.model.is_wedged = False
    assert await asking == 200
    await real.wait_for(200)


async def test_steps_that_take_their_time_are_healthy(real: RealServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that lasts longer than a step ever may, on a machine that is busy, is no sign of a fault."""
    limit_s = 2.5
    monkeypatch.setattr(health, "MAX_STEP_AGE_S", limit_s)
    real.model.pause_s = 0.15
    began = time.monotonic()
    asking = asyncio.create_task(real.ask(max_tokens=20))
    while not asking.done():
        assert await real.statuses() == (200, 200)
        await asyncio.sleep(0.05)
    assert await asking == 200
    assert time.monotonic() - began > limit_s


async def test_an_engine_whose_loop_has_died_is_unhealthy_and_answers_its_requests(
    real: RealServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(now: float) -> None:
        raise RuntimeError("a fault of ours")

    monkeypatch.setattr(real.engine._scheduler, "schedule", broken)
    assert await real.ask() == 503
    assert await real.statuses() == (503, 503)
    assert await real.ask() == 503
