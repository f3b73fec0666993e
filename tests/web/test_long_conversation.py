"""Five hundred messages: what is drawn of them, and what the browser's main thread has to do for it."""

from __future__ import annotations

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.fakes import FakeEngine
from tests.web.conftest import FRAME_S, OpenPage, main_thread_s

NUM_MESSAGES, NUM_PER_REQUEST = 500, 20
NUM_FRAMES = 120
NUM_KEYS = 35

ANSWER = """Message {number}. Some **bold** words, `code` and a list:

1. first
2. second, which is long enough to be broken into two lines on every screen that somebody may have before them

```python
def f(x: int) -> int:
    return x + {number}
```
"""

SCROLL = """async (num_frames) => {
  const scroller = document.querySelector('[role=region]');
  scroller.dispatchEvent(new WheelEvent('wheel', { deltaY: -1 }));
  for (let frame = 0; frame < num_frames; frame += 1) {
    scroller.scrollTop -= 40;
    await new Promise(requestAnimationFrame);
  }
}"""


@pytest.fixture
def page(open_page: OpenPage, engine: FakeEngine, address: str) -> Page:
    content = [
        {"role": "user", "content": f"Question {number}"}
        if number % 2 == 0
        else {"role": "assistant", "content": ANSWER.format(number=number)}
        for number in range(NUM_MESSAGES)
    ]
    with httpx.Client(base_url=address) as client:
        conversation = client.post("/v1/conversations", json={"metadata": {"title": "Long"}}).json()["id"]
        for start in range(0, NUM_MESSAGES, NUM_PER_REQUEST):
            items = content[start : start + NUM_PER_REQUEST]
            assert client.post(f"/v1/conversations/{conversation}/items", json={"items": items}).status_code == 200
    page = open_page()
    page.goto(f"{address}/#/c/{conversation}")
    expect(page.get_by_text(f"Message {NUM_MESSAGES - 1}.")).to_be_visible(timeout=30_000)
    return page


def test_it_scrolls_and_types_within_a_frame_and_is_drawn_as_the_reader_comes_near(page: Page) -> None:
    assert page.locator("article").count() <= 80
    with main_thread_s(page, NUM_FRAMES, FRAME_S):
        page.evaluate(SCROLL, NUM_FRAMES)
    page.locator("[role=region]").focus()
    for _ in range(200):
        if page.locator("[role=region]").get_by_text("Question 0", exact=True).is_visible():
            break
        page.keyboard.press("Home")
        page.wait_for_timeout(20)
    page.evaluate(
        """() => {
          window.changes = 0;
          const messages = document.querySelector('[role=region]');
          const count = all => window.changes += all.length;
          new MutationObserver(count).observe(messages, { subtree: true, childList: true });
        }"""
    )
    with main_thread_s(page, NUM_KEYS, FRAME_S):
        page.locator("#composer").press_sequentially("typing " * (NUM_KEYS // 7))
    assert page.evaluate("window.changes") == 0
