"""Servers under test: the real application on a real socket, over both kinds of store, with a scripted engine."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis
from openai import AsyncOpenAI, OpenAI

from chatsrv.generation import Generation
from chatsrv.seam import EngineSeam
from chatsrv.server import Server
from chatsrv.settings import ServerSettings
from tests.fakes import FakeEngine
from tests.machine import need_program


@dataclass
class RunningServer:
    """A server in a thread of its own.

    Attributes:
        loop: the server's event loop.
    """

    url: str
    engine: FakeEngine
    settings: ServerSettings
    loop: asyncio.AbstractEventLoop
    clients: list[OpenAI] = field(default_factory=list)

    @property
    def ws_url(self) -> str:
        return self.url.replace("http", "ws", 1) + "/v1/responses"

    def client(self) -> OpenAI:
        """The official client; closed with the test."""
        self.clients.append(OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0))
        return self.clients[-1]

    def close_clients(self) -> None:
        for client in self.clients:
            client.close()
        self.clients.clear()

    def async_client(self) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)


class ServerThread:
    def __init__(self, settings: ServerSettings, engine: FakeEngine) -> None:
        self._settings = settings
        self._engine = engine
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run)
        self.server: RunningServer | None = None

    def __enter__(self) -> RunningServer:
        self._thread.start()
        self._started.wait(60)
        if self._error is not None:
            raise self._error
        assert self.server is not None
        return self.server

    def __exit__(self, *exc_info: object) -> None:
        if self.server is not None:
            self.server.close_clients()
            self.stop()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._error is not None and exc_info[0] is None:
            raise self._error

    def stop(self) -> None:
        """What a signal does: drain; the second time at once."""
        assert self.server is not None
        with suppress(RuntimeError):  # its loop is closed: it has stopped already
            self.server.loop.call_soon_threadsafe(self._stop)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        @asynccontextmanager
        async def make_engine() -> AsyncIterator[EngineSeam]:
            yield self._engine

        server = Server(self._settings, make_engine)
        self._stop = server.stop
        running = asyncio.create_task(server.run())
        ready = asyncio.create_task(server.ready())
        await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            self.server = RunningServer(server.url, self._engine, self._settings, asyncio.get_running_loop())
            self._started.set()
        ready.cancel()
        await running


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once somebody waits for the end of an answer."""
    event, ended = threading.Event(), Generation.ended

    async def wait(generation: Generation) -> None:
        event.set()
        await ended(generation)

    monkeypatch.setattr(Generation, "ended", wait)
    return event


def store_answers(client: redis.Redis) -> bool:
    """Whether a Redis that was just started is there."""
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Debian's Redis, by URL, as a deployment would have it."""
    program, port = need_program("redis-server"), free_port()
    folder = tmp_path_factory.mktemp("redis")
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with (folder / "log").open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.02)
        yield f"redis://127.0.0.1:{port}/0"
        process.terminate()


@pytest.fixture(params=["embedded", "redis"])
def store_url(request: pytest.FixtureRequest) -> str:
    """What ``redis_url`` is set to: nothing for the embedded store."""
    return "" if request.param == "embedded" else request.getfixturevalue("redis_server")


@pytest.fixture(scope="session", params=["embedded", "redis"])
def shared_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """One server for all tests that do not restart it."""
    url = "" if request.param == "embedded" else request.getfixturevalue("redis_server")
    settings = make_settings(tmp_path_factory.mktemp("data"), redis_url=url)
    with ServerThread(settings, FakeEngine()) as running:
        yield running


@pytest.fixture
def server(shared_server: RunningServer) -> Iterator[RunningServer]:
    """The shared server with its engine as new; afterwards nothing may run any more."""
    fresh = FakeEngine()
    vars(shared_server.engine).update(vars(fresh))
    yield shared_server
    shared_server.engine.paused = False
    shared_server.close_clients()
    wait_until(lambda: shared_server.engine.running == 0)


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., ServerThread]:
    """Makes servers with settings of the test's own, all in one data folder."""

    def make(engine: FakeEngine | None = None, **settings: Any) -> ServerThread:
        return ServerThread(make_settings(tmp_path, **settings), engine or FakeEngine())

    return make


def make_settings(folder: Path, **settings: Any) -> ServerSettings:
    defaults: dict[str, Any] = {"port": 0, "data_dir": folder, "log_level": "warning", "drain_timeout_s": 0}
    return ServerSettings(**(defaults | settings))


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.005)
