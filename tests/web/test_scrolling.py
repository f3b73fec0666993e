"""The list follows an answer for as long as its reader wants that, and never fights them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.web.conftest import OpenPage
from tests.web.scripted import ScriptedResponse, ScriptedServer

SCROLLER = "[role=region][aria-label=Messages]"


def distance_to_end(page: Page) -> float:
    """Once all lines are drawn that have come: the page draws at its own pace, on a busy machine at a slow one."""
    page.wait_for_timeout(200)
    page.wait_for_function(
        """() => new Promise(resolve => {
          const scroller = document.querySelector('[role=region]');
          const height = scroller.scrollHeight;
          requestAnimationFrame(() => setTimeout(() => resolve(scroller.scrollHeight === height), 150));
        })"""
    )
    return page.locator(SCROLLER).evaluate("e => e.scrollHeight - e.clientHeight - e.scrollTop")


def begin(page: Page, script: ScriptedServer) -> ScriptedResponse:
    page.fill("#composer", "Write a lot")
    page.get_by_role("button", name="Send").click()
    response = script.response(page).begin()
    write_lines(response, 60)
    return response


def write_lines(response: ScriptedResponse, count: int) -> None:
    for number in range(count):
        response.write(f"Line {number}\n\n")


def wheel(page: Page) -> None:
    page.locator(SCROLLER).hover()
    page.mouse.wheel(0, -300)


def page_up(page: Page) -> None:
    page.locator(SCROLLER).focus()
    page.keyboard.press("PageUp")


def drag_down(page: Page) -> None:
    """A finger that pulls the list down, to see what is above."""
    touch = page.context.new_cdp_session(page)
    touch.send("Input.dispatchTouchEvent", {"type": "touchStart", "touchPoints": [{"x": 195, "y": 300}]})
    for y in range(310, 610, 20):
        touch.send("Input.dispatchTouchEvent", {"type": "touchMove", "touchPoints": [{"x": 195, "y": y}]})
    touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


@pytest.mark.parametrize("leave", [wheel, page_up])
def test_a_reader_who_goes_up_is_left_in_peace(
    open_page: OpenPage, script: ScriptedServer, leave: Callable[[Page], None]
) -> None:
    page = open_page(before=script.attach)
    response = begin(page, script)
    assert distance_to_end(page) < 5
    leave(page)
    page.wait_for_timeout(300)
    before = page.locator(SCROLLER).evaluate("e => e.scrollTop")
    write_lines(response, 40)
    assert distance_to_end(page) > 500
    assert page.locator(SCROLLER).evaluate("e => e.scrollTop") == before
    page.get_by_role("button", name="Jump to the latest message").click()
    assert distance_to_end(page) < 5
    write_lines(response, 40)
    assert distance_to_end(page) < 5


def test_a_finger_that_goes_up_is_left_in_peace(open_page: OpenPage, script: ScriptedServer) -> None:
    page = open_page(before=script.attach, phone=True)
    response = begin(page, script)
    assert distance_to_end(page) < 5
    drag_down(page)
    write_lines(response, 40)
    assert distance_to_end(page) > 500


def test_scrolling_down_to_the_end_follows_again(open_page: OpenPage, script: ScriptedServer) -> None:
    page = open_page(before=script.attach)
    response = begin(page, script)
    wheel(page)
    page.wait_for_timeout(200)
    page.mouse.wheel(0, 3000)
    page.wait_for_timeout(300)
    expect(page.get_by_role("button", name="Jump to the latest message")).to_have_count(0)
    write_lines(response, 40)
    assert distance_to_end(page) < 5


def test_a_tall_block_that_comes_at_once_is_no_reader_who_goes_up(open_page: OpenPage, script: ScriptedServer) -> None:
    page = open_page(before=script.attach)
    response = begin(page, script)
    response.write("```python\n" + "print(1)\n" * 60 + "```\n\nmore\n\n")
    assert distance_to_end(page) < 5
    write_lines(response, 10)
    assert distance_to_end(page) < 5


def test_wheel_in_a_list_that_needs_no_scrolling_changes_nothing(open_page: OpenPage, script: ScriptedServer) -> None:
    page = open_page(before=script.attach)
    page.fill("#composer", "Hi")
    page.keyboard.press("Enter")
    response = script.response(page).begin().write("Short")
    wheel(page)
    write_lines(response, 60)
    assert distance_to_end(page) < 5
