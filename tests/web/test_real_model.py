"""The whole path: the page, the server as it is started by hand, and the demo model."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.web.conftest import OpenPage

ANSWER = "article[aria-label='Answer']"
READY = "chatsrv: ready at "


@pytest.fixture(scope="module")
def real_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("data")
    environment = {**os.environ, "CHATSRV_PORT": "0", "CHATSRV_DATA_DIR": str(folder), "CHATSRV_LOG_LEVEL": "warning"}
    command = [sys.executable, "-m", "chatsrv.cli", "serve"]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, env=environment, cwd=root, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = next((line for line in process.stdout if line.startswith(READY)), "")
        assert line, "the server ended before it was ready"
        yield line.removeprefix(READY).strip()
        process.terminate()


@pytest.fixture
def page(open_page: OpenPage, real_address: str) -> Page:
    page = open_page(address=real_address)
    page.keyboard.press("Control+,")
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Longest answer (tokens)").fill("48")
    page.get_by_role("button", name="Close").click()
    return page


def test_an_answer_streams_in(page: Page) -> None:
    page.evaluate(
        """() => {
          window.lengths = new Set();
          const note = () => window.lengths.add(document.querySelector('.prose')?.textContent.length ?? 0);
          new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true });
        }"""
    )
    page.fill("#composer", "What is the capital of France? Answer in one sentence.")
    page.keyboard.press("Enter")
    expect(page.locator(ANSWER)).to_contain_text("Paris", timeout=60_000)
    expect(page.locator("[aria-busy=true]")).to_have_count(0, timeout=60_000)
    assert page.evaluate("window.lengths.size") > 2
    expect(page.locator(ANSWER)).to_contain_text("first text after")


def test_a_second_turn_takes_the_first_from_the_cache(page: Page) -> None:
    for number, text in enumerate(("Say hello.", "Say it again."), start=1):
        page.fill("#composer", text)
        page.keyboard.press("Enter")
        expect(page.locator(ANSWER)).to_have_count(number)
        expect(page.locator("[aria-busy=true]")).to_have_count(0, timeout=60_000)
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


def test_the_page_is_served_with_a_strict_policy(real_address: str) -> None:
    response = httpx.get(real_address)
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "<style" not in response.text
    assert " style=" not in response.text
