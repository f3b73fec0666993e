"""What the page's reader sees while the store or the server is away, and that they go on where they were."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from tests.chatsrv.conftest import ServerThread, free_port, make_settings
from tests.chatsrv.test_store_outage import Outage, outage  # noqa: F401  # a fixture
from tests.fakes import FakeEngine
from tests.web.conftest import OpenPage, started_server, wait_until_ready
from tests.web.scripted import ScriptedServer

ANSWER = "article[aria-label='Answer']"


def ask(page: Page, text: str) -> None:
    page.fill("#composer", text)
    page.keyboard.press("Enter")


def wait_for_end(page: Page) -> None:
    expect(page.locator("[aria-busy=true]")).to_have_count(0, timeout=30_000)


def test_a_store_that_is_away_is_told_and_what_was_typed_is_kept(
    open_page: OpenPage,
    tmp_path: Path,
    outage: Outage,  # noqa: F811
) -> None:
    engine = FakeEngine(delay_s=0.01)
    with ServerThread(make_settings(tmp_path, redis_url=outage.url), engine) as running:
        page = open_page(address=running.url, may_fail=True)
        engine.enqueue("word " * 50 + "end")
        ask(page, "First")
        expect(page.locator(ANSWER)).to_contain_text("word word")
        outage.kill()
        expect(page.locator(ANSWER)).to_contain_text("end")
        wait_for_end(page)
        ask(page, "Second")
        expect(page.get_by_role("alert")).to_contain_text("store")
        page.keyboard.press("Control+Shift+o")
        ask(page, "Third")
        expect(page.get_by_text("That did not work")).to_contain_text("store")
        expect(page.locator("#composer")).to_have_value("Third")
        outage.start()
        page.keyboard.press("Enter")
        expect(page.locator(ANSWER)).to_contain_text("You said: Third", timeout=20_000)
        expect(page.get_by_text("That did not work")).to_have_count(0)
        page.get_by_role("button", name="First", exact=True).click()
        page.get_by_role("button", name="Try again").click()
        expect(page.locator(ANSWER).last).to_contain_text("You said: Second")


def test_an_answer_that_could_not_be_saved_says_so(open_page: OpenPage, script: ScriptedServer) -> None:
    page = open_page(before=script.attach)
    ask(page, "Hello")
    script.response(page).begin().write("Hi").end(chatsrv={"saved": False})
    expect(page.get_by_text("This answer could not be saved.")).to_be_visible()


def test_a_server_that_is_killed_in_mid_answer_is_found_again(open_page: OpenPage, tmp_path: Path) -> None:
    """The server as it is started by hand, with the demo model."""
    port = str(free_port())
    with started_server(tmp_path, port) as first:
        page = open_page(address=wait_until_ready(first), may_fail=True)
        ask(page, "Count from one to two hundred in words.")
        expect(page.locator(f"{ANSWER} .prose")).not_to_be_empty(timeout=30_000)
        first.kill()
    expect(page.get_by_text("No connection.")).to_be_visible()
    told = page.locator(f"{ANSWER} .prose").inner_text()
    with started_server(tmp_path, port) as second:
        wait_until_ready(second)
        expect(page.get_by_text("No connection.")).to_have_count(0, timeout=30_000)
        wait_for_end(page)
        assert page.locator(f"{ANSWER} .prose").inner_text().startswith(told[: len(told) // 2])
        ask(page, "Say hello.")
        expect(page.locator(ANSWER)).to_have_count(2)
        wait_for_end(page)
        expect(page.locator(f"{ANSWER} .prose").last).not_to_be_empty()
