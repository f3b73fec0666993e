"""A real Chromium, and pages that show the chat."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.chatsrv.conftest import RunningServer, ServerThread, make_settings
from tests.fakes import FakeEngine
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

DESKTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}

OpenPage = Callable[..., Page]


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


@pytest.fixture
def open_page(browser: Browser, address: str) -> Iterator[OpenPage]:
    """Opens the chat in a fresh browser profile; a page that logs an error or asks another host fails its test."""
    contexts = []
    problems: list[str] = []

    def open_page(
        *, path: str = "", phone: bool = False, before: Callable[[Page], None] | None = None, **options: Any
    ) -> Page:
        size = PHONE if phone else DESKTOP
        context = browser.new_context(viewport=size, is_mobile=phone, has_touch=phone, **options)
        contexts.append(context)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        page = context.new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
        page.on(
            "request",
            lambda request: None if request.url.startswith((address, "blob:")) else problems.append(request.url),
        )
        if before:
            before(page)
        page.goto(f"{address}/{path}")
        page.locator("#composer").wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


@pytest.fixture
def script() -> ScriptedServer:
    """Plays the server's side of the socket; pass its ``attach`` as ``before``."""
    return ScriptedServer()
