"""What happens in another tab, or on another device, is seen in this one."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.fakes import FakeEngine
from tests.web.conftest import OpenPage
from tests.web.test_conversations import ANSWER, ask, edit_first, items, questions, wait_for_end


@pytest.fixture
def page(open_page: OpenPage, engine: FakeEngine) -> Page:
    return open_page()


def open_beside(page: Page) -> Page:
    """The same conversation in another tab."""
    other = page.context.new_page()
    other.goto(page.url)
    expect(other.locator(ANSWER)).to_have_count(page.locator(ANSWER).count())
    return other


def come_back(page: Page) -> None:
    """As if the tab had been behind another one."""
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def conversation_of(page: Page, address: str) -> str:
    return f"{address}/v1/conversations/{page.url.rsplit('/', 1)[-1]}"


def delete_elsewhere(page: Page, address: str) -> None:
    httpx.delete(conversation_of(page, address)).raise_for_status()


def test_another_tab_sees_what_is_asked_renamed_and_deleted(page: Page, engine: FakeEngine) -> None:
    ask(page, "Unheard of")
    other = open_beside(page)
    page.bring_to_front()
    engine.delay_s = 0.01
    engine.enqueue("word " * 20 + "end")
    page.fill("#composer", "Two")
    page.keyboard.press("Enter")
    expect(other.locator(ANSWER).last).to_contain_text("word word")
    assert other.locator("[aria-busy=true]").count() == 1
    for tab in (page, other):
        wait_for_end(tab)
        expect(tab.locator(ANSWER).last).to_contain_text("end")
        assert questions(tab) == ["Unheard of", "Two"]
    edit_first(page, "Uno")
    expect(other.locator(ANSWER)).to_have_count(1)
    expect(other.locator(ANSWER)).to_contain_text("You said: Uno")
    page.locator("nav li", has_text="Unheard of").hover()
    page.locator("nav li", has_text="Unheard of").get_by_label("Rename").click()
    page.get_by_label("Conversation title").fill("Numbers")
    page.keyboard.press("Enter")
    expect(other.locator("h1")).to_have_text("Numbers")
    expect(other.locator("nav .title").first).to_have_text("Numbers")
    page.locator("nav li", has_text="Numbers").get_by_label("Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(other.get_by_text("This conversation was deleted.")).to_be_visible()
    expect(other.locator("nav .title", has_text="Numbers")).to_have_count(0)


def test_who_comes_back_sees_what_was_done_elsewhere(open_page: OpenPage, engine: FakeEngine, address: str) -> None:
    page = open_page(may_fail=True)
    ask(page, "Here")
    body = {"items": [{"role": "user", "content": "There"}]}
    httpx.post(f"{conversation_of(page, address)}/items", json=body).raise_for_status()
    httpx.post(conversation_of(page, address), json={"metadata": {"title": "Here and there"}}).raise_for_status()
    come_back(page)
    expect(page.locator("h1")).to_have_text("Here and there")
    expect(page.locator("nav .title").first).to_have_text("Here and there")
    expect(page.get_by_text("There", exact=True)).to_be_visible()
    delete_elsewhere(page, address)
    come_back(page)
    expect(page.get_by_text("This conversation was deleted.")).to_be_visible()
    expect(page.locator("nav .title", has_text="Here and there")).to_have_count(0)


def test_a_chat_that_ran_behind_another_one_is_up_to_date(page: Page, engine: FakeEngine, address: str) -> None:
    engine.delay_s = 0.01
    engine.enqueue("word " * 100)
    page.fill("#composer", "Runs behind")
    page.keyboard.press("Enter")
    expect(page.locator(ANSWER)).to_contain_text("word")
    conversation = conversation_of(page, address)
    page.get_by_role("button", name="New chat").first.click()
    httpx.post(conversation, json={"metadata": {"title": "Renamed elsewhere"}}).raise_for_status()
    page.locator("nav .title", has_text="Runs behind").click()
    expect(page.locator("h1")).to_have_text("Renamed elsewhere")
    assert page.locator("[aria-busy=true]").count() == 1


def test_who_comes_back_finds_things_where_they_were(page: Page, engine: FakeEngine) -> None:
    engine.enqueue("line\n\n" * 100)
    ask(page, "Long")
    engine.delay_s = 0.01
    engine.enqueue("word " * 60 + "end")
    page.fill("#composer", "Go on")
    page.keyboard.press("Enter")
    expect(page.locator(ANSWER).last).to_contain_text("word")
    page.fill("#composer", "Half a thou")
    page.locator(".scroller").hover()
    page.mouse.wheel(0, -500)
    page.wait_for_timeout(300)
    top = page.locator(".scroller").evaluate("element => element.scrollTop")
    for _ in range(5):
        come_back(page)
        page.wait_for_timeout(100)
    assert page.locator(".scroller").evaluate("element => element.scrollTop") == top
    wait_for_end(page)
    assert page.locator(f"{ANSWER} .prose").last.inner_text() == ("word " * 60 + "end")
    expect(page.locator("#composer")).to_have_value("Half a thou")
    assert questions(page) == ["Long", "Go on"]


def test_what_was_typed_for_a_deleted_conversation_goes_to_a_new_one(
    page: Page, engine: FakeEngine, address: str
) -> None:
    ask(page, "Deleted elsewhere")
    delete_elsewhere(page, address)
    page.fill("#composer", "Are you still there?")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("This conversation was deleted.")
    expect(page.locator("nav .title", has_text="Deleted elsewhere")).to_have_count(0)
    page.get_by_role("button", name="Send in a new chat").dblclick()
    expect(page.locator(ANSWER)).to_contain_text("You said: Are you still there?")
    expect(page.locator("nav .title", has_text="Are you still there?")).to_have_count(1)
    assert [item["role"] for item in items(page, address)] == ["user", "assistant"]


def test_the_row_of_a_deleted_conversation_goes(open_page: OpenPage, engine: FakeEngine, address: str) -> None:
    page = open_page(may_fail=True)
    for title in ("Opened in vain", "Deleted twice"):
        page.get_by_role("button", name="New chat").first.click()
        ask(page, title)
        delete_elsewhere(page, address)
    page.locator("li", has_text="Deleted twice").hover()
    page.locator("li", has_text="Deleted twice").get_by_label("Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator("nav .title", has_text="Deleted twice")).to_have_count(0)
    expect(page.get_by_text("That did not work")).to_have_count(0)
    page.locator("nav .title", has_text="Opened in vain").click()
    expect(page.get_by_text("That did not work")).to_be_visible()
    expect(page.locator("nav .title", has_text="Opened in vain")).to_have_count(0)
