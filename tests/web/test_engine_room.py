"""The engine room: what it shows of an engine whose inside is known, and that it can be looked back at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.chatsrv.conftest import ServerThread, make_settings
from tests.fakes import WatchedEngine
from tests.web.conftest import OpenPage
from tests.web.test_accessibility import serious_findings


@pytest.fixture(scope="module")
def watched_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServerThread(make_settings(tmp_path_factory.mktemp("data")), WatchedEngine()) as running:
        yield running.url


@pytest.fixture
def page(open_page: OpenPage, watched_address: str) -> Page:
    page = open_page(address=watched_address)
    page.get_by_role("button", name="Engine room").click()
    expect(page.get_by_role("heading", name="Block map")).to_be_visible()
    return page


def gauge(page: Page, name: str) -> str:
    return page.locator("dl > div", has_text=name).locator("dd").inner_text()


def test_gauges_and_requests(page: Page) -> None:
    assert gauge(page, "Blocks held") == "4"
    assert gauge(page, "Blocks cached") == "2"
    assert gauge(page, "Waste in held blocks") == "25%"
    assert gauge(page, "Cache hits") == "25%"
    assert gauge(page, "Swap pool") == "0 / 8"
    assert gauge(page, "Waiting by class") == "0 · 0 · 1"
    assert gauge(page, "Preemptions") == "3"
    expect(page.get_by_role("button", name="request-b")).to_contain_text("Urgent · running · tokens: 40 · blocks: 3")
    expect(page.get_by_role("button", name="request-c")).to_contain_text("waiting")
    expect(page.get_by_text("Step 7 · requests: 2 · tokens: 17 · 20 ms")).to_be_visible()


def test_a_block_tells_who_holds_it(page: Page) -> None:
    block_map = page.get_by_role("group", name="64 blocks: 4 held, 2 cached, 58 free")
    block_map.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_text("Block 0 · held · 2 references · request-a · request-b")).to_be_visible()
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_text("Block 4 · cached · 0 references · #abababababab · content 3 steps old")).to_be_visible()
    page.locator("canvas").first.hover(position={"x": 5, "y": 5})
    expect(page.get_by_text("Block 0 · held")).to_be_visible()


def test_the_block_table_of_a_request(page: Page) -> None:
    page.get_by_role("button", name="request-b").click()
    table = page.get_by_role("region", name="Block table")
    expect(table.get_by_role("listitem")).to_have_text(["0→0", "1→2", "2→3"])
    expect(table.locator("line")).to_have_count(3)


def test_the_map_is_drawn(page: Page) -> None:
    canvas = page.locator("canvas").first
    colour_at = """(canvas, point) => {
      const scale = canvas.width / canvas.clientWidth;
      return [...canvas.getContext("2d").getImageData(point.x * scale, point.y * scale, 1, 1).data].join();
    }"""
    held, shared, cached, free = (canvas.evaluate(colour_at, {"x": 32 * n + 5, "y": 5}) for n in (1, 0, 4, 10))
    assert held == shared
    assert len({held, cached, free}) == 3


def test_pause_look_back_save_and_play_again(page: Page, tmp_path: Path) -> None:
    page.wait_for_timeout(600)
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Paused")).to_be_visible()
    page.get_by_role("slider", name="Moment of the recording").fill("0")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save recording").click()
    download.value.save_as(tmp_path / "saved.ndjson")
    page.get_by_role("button", name="Back to live").click()
    page.locator("input[type=file]").last.set_input_files(tmp_path / "saved.ndjson")
    expect(page.get_by_text("Recording", exact=True)).to_be_visible()
    assert gauge(page, "Blocks held") == "4"
    (tmp_path / "other.ndjson").write_text("{}")
    page.locator("input[type=file]").last.set_input_files(tmp_path / "other.ndjson")
    expect(page.get_by_role("alert")).to_contain_text("not a recording")


def test_the_way_back_to_the_conversation(page: Page) -> None:
    page.reload()
    expect(page.get_by_role("heading", name="Block map")).to_be_visible()
    page.get_by_role("button", name="Back to the conversation").click()
    expect(page.get_by_role("heading", name="What shall we talk about?")).to_be_visible()


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", "ar"])
def test_axe_finds_nothing_serious(open_page: OpenPage, watched_address: str, locale: str, color_scheme: str) -> None:
    page = open_page(address=watched_address, locale=locale, color_scheme=color_scheme, reduced_motion="reduce")
    page.evaluate("location.hash = '#/engine'")
    expect(page.locator("canvas").first).to_be_visible()
    page.get_by_role("button", name="request-b").click()
    assert serious_findings(page) == []
