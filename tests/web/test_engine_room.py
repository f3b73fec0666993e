"""The engine room: what it shows of an engine whose inside is known, and that it can be looked back at."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, WebSocketRoute, expect

from tests.chatsrv.conftest import wait_until
from tests.web.conftest import OpenPage, Shoot, main_thread_s
from tests.web.test_accessibility import serious_findings

NONE = {"priority": 0, "default": 0, "flex": 0}
GAUGES = {"waste": 0, "cache_hit_rate": 0, "prompt_tokens_per_s": 0, "output_tokens_per_s": 0}
GAUGES |= {"num_running": NONE, "num_waiting": NONE, "num_swap_preemptions": 0, "num_recompute_preemptions": 0}


@pytest.fixture
def page(open_page: OpenPage, watched_address: str) -> Page:
    page = open_page(address=watched_address)
    page.get_by_role("button", name="Engine room").click()
    expect(page.get_by_role("heading", name="Block map")).to_be_visible()
    return page


def gauge(page: Page, name: str) -> str:
    return page.locator("dl > div").filter(has=page.get_by_text(name, exact=True)).locator("dd").inner_text()


def test_gauges_and_requests(page: Page) -> None:
    assert gauge(page, "Blocks held") == "4"
    assert gauge(page, "Blocks cached") == "2"
    assert gauge(page, "Waste") == "25%"
    assert gauge(page, "Cache hits") == "25%"
    assert gauge(page, "Swap pool") == "0 / 8"
    assert gauge(page, "Waiting") == "0 · 0 · 1"
    assert gauge(page, "Preemptions") == "1 + 2"
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
    expect(table.locator("path")).to_have_count(3)


def test_the_map_is_drawn(page: Page) -> None:
    canvas = page.locator("canvas").first
    colour_at = """(canvas, point) => {
      const scale = canvas.width / canvas.clientWidth;
      return [...canvas.getContext("2d").getImageData(point.x * scale, point.y * scale, 1, 1).data].join();
    }"""
    held, shared, cached, free = (canvas.evaluate(colour_at, {"x": 40 * n + 5, "y": 5}) for n in (1, 0, 4, 10))
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
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
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


def test_a_step_tells_what_it_computed(page: Page) -> None:
    page.get_by_role("group", name="Step 7").hover()
    steps = page.get_by_role("region", name="Steps")
    expect(steps.get_by_role("listitem")).to_contain_text(["request-a 1 token", "request-b 16 prompt tokens"])
    expect(steps.get_by_role("listitem").nth(4)).to_have_text("preemption")


def test_a_hundred_thousand_blocks_are_drawn_in_time(open_page: OpenPage, watched_address: str) -> None:
    num_blocks = 100_000
    states, references = bytes(number % 3 for number in range(num_blocks)), bytes(num_blocks)
    picture = json.dumps(
        {
            "type": "engine.snapshot",
            "time_s": 0,
            "scene": None,
            "trace": {
                "block_size": 16,
                "states": base64.b64encode(states).decode(),
                "references": base64.b64encode(references).decode(),
                "swap_states": base64.b64encode(states).decode(),
                "requests": [],
                "steps": [],
            },
            "gauges": GAUGES,
        }
    )
    sockets: list[WebSocketRoute] = []

    def attach(page: Page) -> None:
        page.route_web_socket("**/v1/engine/live", lambda socket: sockets.append(socket))

    page = open_page(address=watched_address, before=attach)
    page.evaluate("location.hash = '#/engine'")
    wait_until(lambda: page.wait_for_timeout(20) is None and bool(sockets))
    sockets[0].send(picture)
    expect(page.get_by_role("group", name="100,000 blocks")).to_be_visible()
    with main_thread_s(page, num_units=10, limit_s=1 / 8):
        for _ in range(10):
            sockets[0].send(picture)
            page.wait_for_timeout(100)


def test_slow_motion_and_back(page: Page) -> None:
    page.get_by_role("button", name="Slow motion").click()
    expect(page.get_by_text("Slow motion", exact=True)).to_be_visible()
    page.get_by_role("button", name="Slow motion").click()
    expect(page.get_by_text("Live", exact=True)).to_be_visible()


def test_a_newcomer_is_shown_how_it_works(page: Page, shoot: Shoot) -> None:
    caption = page.locator(".caption")
    cards = page.get_by_role("list", name="What to look for").get_by_role("listitem")
    expect(cards).to_have_count(4)
    page.get_by_role("button", name="Show me how it works").click()
    expect(caption).to_contain_text("Paging. A request takes one block after another")
    expect(page.get_by_role("group", name="40 blocks")).to_be_visible()
    expect(cards.nth(3)).to_contain_text("0 preemptions")
    expect(caption).to_contain_text("Sharing.", timeout=20_000)
    expect(cards.nth(1)).to_contain_text("4 shared blocks")
    expect(caption).to_contain_text("Copy-on-write.", timeout=20_000)
    expect(page.get_by_role("button", name="three-answers")).to_be_visible()
    expect(caption).to_contain_text("Preemption.", timeout=20_000)
    expect(cards.nth(3)).to_contain_text("2 preemptions")
    expect(page.get_by_role("button", name="question-4")).to_contain_text("swapped out")
    page.get_by_role("button", name="question-1").click()
    page.get_by_role("button", name="Pause").click()
    page.set_viewport_size({"width": 1280, "height": 1320})
    shoot(page, "engine-room.png")
    page.get_by_role("button", name="End the demonstration").click()
    expect(page.get_by_role("button", name="request-a")).to_be_visible()


def test_the_room_on_a_phone(open_page: OpenPage, watched_address: str) -> None:
    page = open_page(address=watched_address, phone=True)
    page.get_by_role("button", name="Show conversations").tap()
    page.get_by_role("button", name="Engine room").tap()
    expect(page.get_by_role("heading", name="Block map")).to_be_visible()
    page.get_by_role("group", name="64 blocks").locator("canvas").tap(position={"x": 5, "y": 5})
    expect(page.get_by_role("button", name="request-a")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_role("region", name="Block table")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator(".room").evaluate("e => e.scrollWidth <= e.clientWidth")


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
@pytest.mark.parametrize("locale", ["en-US", "ar"])
def test_axe_finds_nothing_serious(open_page: OpenPage, watched_address: str, locale: str, color_scheme: str) -> None:
    page = open_page(address=watched_address, locale=locale, color_scheme=color_scheme, reduced_motion="reduce")
    page.evaluate("location.hash = '#/engine'")
    expect(page.locator("canvas").first).to_be_visible()
    page.get_by_role("button", name="request-b").click()
    assert serious_findings(page) == []
