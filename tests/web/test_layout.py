"""Where things lie: nothing is cut, hangs apart or points the wrong way, on a phone and in Arabic neither."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.fakes import FakeEngine
from tests.web.conftest import PHONE, OpenPage
from tests.web.scripted import ScriptedServer

ANSWERS = ("Red.", "Green, and a longer sentence about it.", "Blue " * 40, "`grey` " * 60)
TIMES = {"ttft_s": 0.08, "tokens_per_s": 118.4}


def boxes(found: Locator) -> list[dict[str, float]]:
    measured: list[dict[str, float]] = found.evaluate_all("all => all.map(e => e.getBoundingClientRect().toJSON())")
    return measured


def answer_all(page: Page, script: ScriptedServer) -> None:
    """Asks once and is answered four times, which opens them side by side."""
    page.keyboard.press("Control+,")
    page.locator("select").last.select_option("4")
    page.keyboard.press("Escape")
    page.fill("#composer", "Name a colour.")
    page.locator("button.send").click()
    for number, text in enumerate(ANSWERS):
        script.response(page, number).begin().write(text).end(chatsrv=TIMES)
    expect(page.locator("article .figures")).to_have_count(len(ANSWERS))


@pytest.mark.parametrize("locale", ["en-US", "ar"])
def test_figures_break_between_and_their_dots_are_even(
    open_page: OpenPage, script: ScriptedServer, locale: str
) -> None:
    page = open_page(before=script.attach, phone=True, locale=locale)
    page.fill("#composer", "Name a colour.")
    page.locator("button.send").click()
    script.response(page).begin().write("Red.").end(chatsrv=TIMES)
    figures = boxes(page.locator(".figures > span"))
    assert len(figures) == 4
    assert len({round(box["height"]) for box in figures}) == 1
    [line] = boxes(page.locator(".figures"))
    start, end = ("right", "left") if locale == "ar" else ("left", "right")
    gaps = set()
    for before, box in pairwise(figures):
        is_first = box["top"] > before["top"]
        # The dot before the first one of a line lies outside of the box, which cuts it.
        assert not is_first or abs(box[start] - line[start]) < 1
        if not is_first:
            gaps.add(round(abs(box[start] - before[end])))
    assert len(gaps) == 1
    assert page.locator(".figures").evaluate("e => getComputedStyle(e).overflow") == "clip"


@pytest.mark.parametrize("locale", ["en-US", "ar"])
def test_four_answers_are_seen_whole(open_page: OpenPage, script: ScriptedServer, locale: str) -> None:
    page = open_page(before=script.attach, locale=locale)
    answer_all(page, script)
    cards = boxes(page.locator("article:has(.figures)"))
    main = boxes(page.locator(".scroller"))[0]
    assert all(main["left"] <= card["left"] and card["right"] <= main["right"] for card in cards)
    assert len({card["top"] for card in cards}) == len({card["left"] for card in cards}) == 2
    assert min(card["width"] for card in cards) > 360


@pytest.mark.parametrize("locale", ["en-US", "ar"])
def test_on_a_phone_the_next_answer_looks_in(open_page: OpenPage, script: ScriptedServer, locale: str) -> None:
    page = open_page(before=script.attach, phone=True, locale=locale)
    answer_all(page, script)
    first, second, *_ = boxes(page.locator("article:has(.figures)"))
    assert first["left"] > 0
    assert first["right"] < PHONE["width"]
    assert first["width"] > 0.8 * PHONE["width"]
    assert second["left"] < PHONE["width"]
    assert second["right"] > 0
    [close] = boxes(page.locator("section .head button"))
    assert close["bottom"] <= first["top"]
    assert page.locator(".scroller").evaluate("e => e.scrollWidth <= e.clientWidth")


def test_the_versions_of_a_question_end_with_its_bubble(open_page: OpenPage, engine: FakeEngine) -> None:
    page = open_page()
    page.fill("#composer", "One")
    page.keyboard.press("Enter")
    expect(page.locator("article .figures")).to_be_visible()
    question = page.locator("article").first
    question.hover()
    page.get_by_role("button", name="Edit").first.click()
    page.get_by_label("Edit your message").fill("Two")
    page.keyboard.press("Enter")
    expect(question).to_contain_text("2 of 2")
    page.locator("#composer").focus()
    page.mouse.move(0, 0)
    page.wait_for_timeout(300)
    [bubble] = boxes(question.locator(".bubble"))
    seen = question.locator(".actions button").evaluate_all(
        """all => all.filter(e => getComputedStyle(e).opacity > 0)
          .map(e => e.querySelector("svg").getBoundingClientRect().right)"""
    )
    assert len(seen) == 2
    assert abs(max(seen) - bubble["right"]) < 2


@pytest.mark.parametrize("locale", ["en-US", "ar"])
@pytest.mark.parametrize("width", [390, 320])
def test_the_controls_of_the_engine_room_are_two_rows(
    open_page: OpenPage, watched_address: str, locale: str, width: int
) -> None:
    page = open_page(address=watched_address, phone=True, locale=locale)
    page.set_viewport_size({"width": width, "height": 844})
    page.evaluate("location.hash = '#/engine'")
    expect(page.locator(".cells canvas")).to_be_visible()
    parts = boxes(page.locator(".controls button, .controls input[type=range], .controls .mode"))
    assert all(part["left"] >= 0 and part["right"] <= width for part in parts)
    middles = sorted((part["top"] + part["bottom"]) / 2 for part in parts)
    assert sum(after - before > 8 for before, after in pairwise(middles)) == 1
    blocks, swapped = boxes(page.locator("canvas").filter(visible=True))[:2]
    assert blocks["width"] == swapped["width"]
    # Eight blocks are a row, as high as each row above.
    assert blocks["height"] % swapped["height"] == 0


@pytest.mark.parametrize("locale", ["en-US", "ar"])
def test_the_live_end_of_time_is_beside_its_name(open_page: OpenPage, watched_address: str, locale: str) -> None:
    page = open_page(address=watched_address, locale=locale)
    page.evaluate("location.hash = '#/engine'")
    slider = page.locator(".controls input[type=range]")
    expect(slider).to_be_visible()
    [time], [name] = boxes(slider), boxes(page.locator(".controls .mode"))
    assert slider.evaluate("e => getComputedStyle(e).direction") == "ltr"
    assert time["right"] <= name["left"]


def test_what_was_imported_is_seen_on_a_phone(open_page: OpenPage, engine: FakeEngine, tmp_path: Path) -> None:
    page = open_page(phone=True)
    page.get_by_role("button", name="Show conversations").tap()
    (tmp_path / "other.json").write_text(json.dumps({}))
    page.locator("nav input[type=file]").set_input_files(tmp_path / "other.json")
    expect(page.get_by_text("This file is not an exported conversation.")).to_be_visible()
    expect(page.locator("nav")).to_be_hidden()


def test_a_failure_is_told_in_the_language_of_the_page(open_page: OpenPage, script: ScriptedServer) -> None:
    page = open_page(before=script.attach, phone=True, locale="ar")
    page.fill("#composer", "سؤال طويل")
    page.locator("button.send").click()
    error = {"code": "context_length_exceeded", "message": "input: the prompt has 9031 tokens; at most 8191 fit"}
    script.response(page).begin().end("failed", error=error)
    note = page.get_by_role("alert")
    expect(note).to_contain_text("المحادثة أطول مما يتسع له النموذج.")
    expect(note.locator("bdi")).to_have_text(error["message"])
    assert note.locator("bdi").evaluate("e => getComputedStyle(e).unicodeBidi") == "isolate"
    assert note.get_by_role("button").evaluate("e => getComputedStyle(e).whiteSpace") == "nowrap"
