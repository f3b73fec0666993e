"""A real Chromium, and pages that show the chat."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.chatsrv.conftest import RunningServer, ServerThread, make_settings, wait_until
from tests.fakes import FakeEngine, WatchedEngine
from tests.machine import need_program
from tests.web.scripted import ScriptedServer

# Chromium of a distribution asks its maker for updates; here it may ask nobody.
CHROMIUM_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

ROOT = Path(__file__).parents[2]
READY = "chatsrv: ready at "

FRAME_S = 1 / 60
"""What there is for a frame."""

DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}

MAX_PICTURE_BYTES = 250_000

OpenPage = Callable[..., Page]
Shoot = Callable[[Page, str], None]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=need_program("chromium"), args=CHROMIUM_FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """The real server with an engine that follows scripts."""
    with ServerThread(make_settings(tmp_path_factory.mktemp("data")), FakeEngine()) as running:
        yield running


@pytest.fixture(scope="session")
def address(server: RunningServer) -> str:
    """Where the page is."""
    return server.url


@pytest.fixture(scope="session")
def watched_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose engine's inside is known."""
    with ServerThread(make_settings(tmp_path_factory.mktemp("data")), WatchedEngine()) as running:
        yield running.url


@contextmanager
def started_server(folder: Path, port: str = "0") -> Iterator[subprocess.Popen[str]]:
    """The server as it is started by hand, with the demo model and few blocks."""
    settings = {"PORT": port, "DATA_DIR": str(folder), "LOG_LEVEL": "warning"}
    settings |= {"NUM_BLOCKS": "72", "MAX_MODEL_LEN": "1024"}
    environment = os.environ | {f"CHATSRV_{name}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "chatsrv.cli", "serve"]
    with subprocess.Popen(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def wait_until_ready(process: subprocess.Popen[str]) -> str:
    """Its address."""
    assert process.stdout is not None
    line = next((line for line in process.stdout if line.startswith(READY)), "")
    assert line, "the server ended before it was ready"
    return line.removeprefix(READY).strip()


@pytest.fixture(scope="session")
def real_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with started_server(tmp_path_factory.mktemp("data")) as process:
        yield wait_until_ready(process)


@pytest.fixture
def engine(server: RunningServer) -> Iterator[FakeEngine]:
    """The engine behind the server, as new; afterwards nothing may run any more."""
    vars(server.engine).update(vars(FakeEngine()))
    yield server.engine
    server.engine.paused = False
    server.engine.delay_s = 0
    wait_until(lambda: server.engine.running == 0)


@pytest.fixture
def open_page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[OpenPage]:
    """Opens the chat in a fresh browser profile; a page that logs an error or asks another host fails its test."""
    pages = Pages(browser, default_address=lambda: request.getfixturevalue("address"))
    yield pages.open
    pages.close()


@pytest.fixture
def shoot(tmp_path: Path) -> Shoot:
    """Takes a picture of the documentation; with ``UPDATE_SCREENSHOTS=1`` it goes to docs/images."""
    folder = ROOT / "docs" / "images" if os.environ.get("UPDATE_SCREENSHOTS") == "1" else tmp_path
    folder.mkdir(parents=True, exist_ok=True)

    def shoot(page: Page, name: str) -> None:
        page.wait_for_timeout(300)
        page.screenshot(path=folder / name)
        assert (folder / name).stat().st_size < MAX_PICTURE_BYTES

    return shoot


@contextmanager
def main_thread_s(page: Page, num_units: int, limit_s: float) -> Iterator[None]:
    """What happens inside may cost the page's main thread so much on average for each of ``num_units``.

    Measured on the thread's own clock, which stands still while other programs have the processor.
    """
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy_s() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))

    before = busy_s()
    yield
    spent_s = (busy_s() - before) / num_units
    assert spent_s < limit_s, f"{spent_s * 1000:.1f} ms of the main thread, at most {limit_s * 1000:.1f} are there"


@pytest.fixture
def script() -> ScriptedServer:
    """Plays the server's side of the socket; pass its ``attach`` as ``before``."""
    return ScriptedServer()


class Pages:
    """Open pages, and what went wrong in them."""

    def __init__(self, browser: Browser, default_address: Callable[[], str]) -> None:
        self._browser = browser
        self._default_address = default_address
        self._contexts: list[BrowserContext] = []
        self._problems: list[str] = []

    def open(
        self,
        *,
        address: str | None = None,
        phone: bool = False,
        may_fail: bool = False,
        before: Callable[[Page], None] | None = None,
        **options: Any,
    ) -> Page:
        """Options go to the browser context. ``may_fail``: requests may fail, for the server goes away."""
        address = address or self._default_address()
        viewport = PHONE if phone else DESKTOP
        context = self._browser.new_context(viewport=viewport, is_mobile=phone, has_touch=phone, **options)
        self._contexts.append(context)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        self._watch(page, address, may_fail)
        if before:
            before(page)
        page.goto(address)
        page.locator("#composer").wait_for()
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        assert self._problems == []

    def _watch(self, page: Page, address: str, may_fail: bool) -> None:
        own = (address, address.replace("http", "ws", 1), "blob:")
        page.on("pageerror", lambda error: self._problems.append(f"error: {error}"))
        page.on("console", lambda line: self._note(line.text, line.type == "error" and not may_fail))
        page.on("request", lambda request: self._note(request.url, not request.url.startswith(own)))
        page.on("websocket", lambda socket: self._note(socket.url, not socket.url.startswith(own)))

    def _note(self, what: str, is_problem: bool) -> None:
        if is_problem:
            self._problems.append(what)
