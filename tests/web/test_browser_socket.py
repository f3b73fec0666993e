"""The browser's own WebSocket, without our page around it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.chatsrv.conftest import RunningServer, wait_until
from tests.fakes import FakeEngine

ASK = """
async ([text, leaveAfter, code]) => {
  const socket = new WebSocket(location.origin.replace("http", "ws") + "/v1/responses");
  const events = [];
  await new Promise((resolve) => {
    socket.onopen = () => socket.send(JSON.stringify({ type: "response.create", input: text }));
    socket.onclose = (event) => resolve(events.push({ type: "closed", code: event.code, clean: event.wasClean }));
    socket.onmessage = (message) => {
      events.push(JSON.parse(message.data));
      const isLast = /^(error|response.(completed|incomplete|failed|cancelled))$/.test(events.at(-1).type);
      if (isLast || events.length === leaveAfter) socket.close(code);
    };
  });
  return { events, extensions: socket.extensions };
}
"""


@pytest.fixture
def page(browser: Browser, server: RunningServer) -> Iterator[Page]:
    """A page of the server's origin that does nothing by itself."""
    page = browser.new_page()
    page.goto(f"{server.url}/healthz")
    yield page
    page.close()


def test_a_long_message_and_its_answer(page: Page, engine: FakeEngine) -> None:
    """Chromium sends a long message in many frames, and offers a compression that is declined."""
    text = "wörld 🦊 " * 100
    found = page.evaluate(ASK, [text, 0, 1000])
    *events, last, closed = found["events"]
    assert [event["sequence_number"] for event in [*events, last]] == list(range(len(events) + 1))
    assert last["response"]["output"][0]["content"][0]["text"] == f"You said: {text}"
    assert closed == {"type": "closed", "code": 1000, "clean": True}
    assert found["extensions"] == ""


@pytest.mark.parametrize("code", [1000, 3000, 4999])
def test_closing_in_mid_answer_is_clean(page: Page, server: RunningServer, engine: FakeEngine, code: int) -> None:
    engine.delay_s = 0.002
    found = page.evaluate(ASK, ["x" * 100, 6, code])
    assert found["events"][-1] == {"type": "closed", "code": code, "clean": True}
    response_id = found["events"][0]["response"]["id"]
    client = server.client()
    wait_until(lambda: client.responses.retrieve(response_id).status == "completed")


def test_a_page_of_another_origin_gets_no_socket(page: Page, server: RunningServer) -> None:
    page.goto(server.url.replace("127.0.0.1", "localhost") + "/healthz")
    asked = page.evaluate(ASK.replace("location.origin", f"'{server.url}'"), ["x", 0, 1000])
    assert [event["type"] for event in asked["events"]] == ["closed"]
