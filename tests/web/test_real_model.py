"""The whole path: the page, the server as it is started by hand, and the demo model."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.web.conftest import OpenPage

ANSWER = "article[aria-label='Answer']"


@pytest.fixture
def page(open_page: OpenPage, real_address: str) -> Page:
    page = open_page(address=real_address)
    page.keyboard.press("Control+,")
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Longest answer (tokens)").fill("48")
    page.get_by_role("button", name="Close").click()
    return page


def ask(page: Page, text: str) -> None:
    """Asks and waits for the end of the answer."""
    count = page.locator(ANSWER).count()
    page.fill("#composer", text)
    page.keyboard.press("Enter")
    expect(page.locator(ANSWER)).to_have_count(count + 1)
    expect(page.locator("[aria-busy=true]")).to_have_count(0, timeout=60_000)


def test_the_model_answers(page: Page) -> None:
    ask(page, "What is the capital of France? Answer in one sentence.")
    expect(page.locator(ANSWER)).to_contain_text("Paris")
    expect(page.locator(ANSWER)).to_contain_text("first text after")


def test_an_answer_streams_in(page: Page) -> None:
    page.evaluate(
        """() => {
          window.lengths = new Set();
          const note = () => window.lengths.add(document.querySelector('.prose')?.textContent.length ?? 0);
          new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true });
        }"""
    )
    ask(page, "Tell me a long story about a lighthouse.")
    assert page.evaluate("window.lengths.size") > 2


def test_a_second_turn_takes_the_first_from_the_cache(page: Page) -> None:
    ask(page, "Say hello.")
    ask(page, "Say it again.")
    expect(page.locator(ANSWER).last).to_contain_text("from cache")


def test_a_reload_in_mid_answer_loses_and_doubles_nothing(page: Page, real_address: str) -> None:
    page.fill("#composer", "Count from one to twenty in words.")
    page.keyboard.press("Enter")
    expect(page.locator(f"{ANSWER} .prose")).not_to_be_empty(timeout=60_000)
    page.reload()
    expect(page.locator(f"{ANSWER} .prose")).not_to_be_empty(timeout=60_000)
    expect(page.locator("[aria-busy=true]")).to_have_count(0, timeout=60_000)
    conversation = page.url.rsplit("/", 1)[-1]
    items = httpx.get(f"{real_address}/v1/conversations/{conversation}/items?order=asc").json()["data"]
    assert [item["role"] for item in items] == ["user", "assistant"]
    stored = items[1]["content"][0]["text"]
    assert page.locator(f"{ANSWER} .prose").inner_text().split() == stored.split()
