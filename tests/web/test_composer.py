"""Writing a message: input methods, drafts, keys."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.chatsrv.conftest import wait_until
from tests.web.conftest import OpenPage
from tests.web.scripted import ScriptedServer
from tests.web.test_accessibility import serious_findings


@pytest.fixture
def page(open_page: OpenPage, script: ScriptedServer) -> Page:
    return open_page(before=script.attach)


def num_creates(page: Page, script: ScriptedServer) -> int:
    page.wait_for_timeout(150)
    return sum(request["type"] == "response.create" for request in script.requests)


def dispatch(page: Page, *events: str) -> None:
    """Dispatches events to the message field, all in one task."""
    calls = "".join(f"field.dispatchEvent({event});" for event in events)
    page.evaluate(f"() => {{ const field = document.querySelector('#composer'); {calls} }}")


ENTER = "new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true%s })"


def test_enter_belongs_to_the_input_method_while_it_composes(page: Page, script: ScriptedServer) -> None:
    page.fill("#composer", "こんにちは")
    dispatch(page, ENTER % ", isComposing: true")
    dispatch(page, ENTER % ", keyCode: 229")
    dispatch(page, "new CompositionEvent('compositionstart')", "new CompositionEvent('compositionend')", ENTER % "")
    assert num_creates(page, script) == 0
    dispatch(page, ENTER % "")
    script.response(page)


def test_shift_enter_makes_a_new_line(page: Page, script: ScriptedServer) -> None:
    page.locator("#composer").press_sequentially("one")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("two")
    page.keyboard.press("Enter")
    assert script.response(page).request["input"] == "one\ntwo"


def test_nothing_is_sent_twice_or_empty(page: Page, script: ScriptedServer) -> None:
    page.keyboard.press("Enter")
    page.fill("#composer", "   ")
    page.keyboard.press("Enter")
    assert num_creates(page, script) == 0
    page.fill("#composer", "Hello")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    assert num_creates(page, script) == 1


WAITING = "Will be sent when the answer is done."


def test_what_is_sent_during_an_answer_goes_when_that_is_done(page: Page, script: ScriptedServer) -> None:
    page.fill("#composer", "One")
    page.keyboard.press("Enter")
    response = script.response(page).begin().write("First")
    page.fill("#composer", "Two")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text=WAITING)).to_be_visible()
    page.keyboard.press("Enter")
    assert num_creates(page, script) == 1
    assert serious_findings(page) == []
    response.end()
    assert script.response(page, 1).request["input"] == "Two"
    assert script.response(page, 1).request["parent_id"] == "msg_answer0"
    expect(page.locator("#composer")).to_have_value("")
    expect(page.get_by_text(WAITING)).to_have_count(0)
    assert num_creates(page, script) == 2


@pytest.mark.parametrize("take_back", ["Escape", "press", "type", "failure"])
def test_what_waits_for_an_answer_can_be_taken_back(page: Page, script: ScriptedServer, take_back: str) -> None:
    page.fill("#composer", "One")
    page.keyboard.press("Enter")
    response = script.response(page).begin().write("First")
    page.fill("#composer", "Two")
    page.keyboard.press("Enter")
    expect(page.get_by_text(WAITING)).to_be_visible()
    if take_back == "press":
        page.get_by_role("button", name="Cancel").click()
    elif take_back == "failure":
        response.end("failed", error={"code": "server_error", "message": "Broken."})
    else:
        page.keyboard.press("Escape" if take_back == "Escape" else "!")
    expect(page.get_by_text(WAITING)).to_have_count(0)
    if take_back != "failure":
        response.write(" answer").end()
    assert num_creates(page, script) == 1
    assert all(request["type"] == "response.create" for request in script.requests)
    expect(page.locator("#composer")).to_have_value("Two!" if take_back == "type" else "Two")
    expect(page.locator("#composer")).to_be_focused()


def test_who_stops_an_answer_has_the_next_question_sent(page: Page, script: ScriptedServer) -> None:
    """Also where the stop is faster than the first word of the server."""
    page.fill("#composer", "One")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    page.keyboard.type("Two")
    page.keyboard.press("Enter")
    expect(page.get_by_text(WAITING)).to_be_visible()
    script.response(page).begin().write("Fi").end("cancelled")
    assert script.response(page, 1).request["parent_id"] == "msg_answer0"


def test_the_button_sends_later_too(open_page: OpenPage, script: ScriptedServer) -> None:
    page = open_page(before=script.attach, phone=True)
    for text in ("One", "Two"):
        page.locator("#composer").press_sequentially(text)
        page.get_by_role("button", name="Send").click()
    expect(page.get_by_text(WAITING)).to_be_visible()
    script.response(page).begin().write("First").end()
    assert script.response(page, 1).request["input"] == "Two"


def test_on_a_phone_enter_makes_a_new_line(open_page: OpenPage, script: ScriptedServer) -> None:
    page = open_page(before=script.attach, phone=True)
    page.locator("#composer").press_sequentially("one")
    page.keyboard.press("Enter")
    page.keyboard.type("two")
    page.get_by_role("button", name="Send").click()
    assert script.response(page).request["input"] == "one\ntwo"


def test_a_draft_survives_a_reload_and_goes_when_it_is_sent(page: Page, script: ScriptedServer) -> None:
    page.fill("#composer", "Half a thou")
    page.reload()
    expect(page.locator("#composer")).to_have_value("Half a thou")
    page.keyboard.press("Enter")
    script.response(page).begin().end()
    page.get_by_role("button", name="New chat").first.click()
    expect(page.locator("#composer")).to_have_value("")


def test_a_suggestion_fills_the_field(page: Page) -> None:
    page.get_by_role("button", name="Explain an idea").click()
    expect(page.locator("#composer")).to_have_value("Explain how a rainbow forms, in three short paragraphs.")
    expect(page.locator("#composer")).to_be_focused()


def close_dialog(page: Page) -> None:
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_everything_has_a_key(page: Page, script: ScriptedServer) -> None:
    page.keyboard.press("Control+/")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    close_dialog(page)
    page.keyboard.press("Control+,")
    expect(page.get_by_role("dialog", name="Conversation settings")).to_be_visible()
    close_dialog(page)
    page.keyboard.press("Control+k")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Control+b")
    expect(page.get_by_role("navigation")).to_be_hidden()
    page.keyboard.press("/")
    expect(page.locator("#composer")).to_be_focused()
    page.keyboard.type("Hello")
    page.keyboard.press("Enter")
    response = script.response(page).begin().write("An answer")
    page.keyboard.press("Escape")
    wait_until(lambda: page.wait_for_timeout(20) is None and script.requests[-1]["type"] != "response.create")
    assert script.requests[-1] == {"type": "response.cancel", "response_id": "resp_0"}
    response.end("cancelled")
    page.keyboard.press("Control+Shift+c")
    assert page.evaluate("navigator.clipboard.readText()") == "An answer"
    page.keyboard.press("ArrowUp")
    expect(page.get_by_label("Edit your message")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+Shift+o")
    expect(page.get_by_role("heading", name="What shall we talk about?")).to_be_visible()
