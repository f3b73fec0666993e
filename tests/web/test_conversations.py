"""Conversations as a whole: branches, the list, files, and what survives a reload or a lost server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.chatsrv.conftest import ServerThread, make_settings
from tests.fakes import FakeEngine
from tests.web.conftest import OpenPage

ANSWER = "article[aria-label='Answer']"
QUESTION = "article[aria-label='You']"


@pytest.fixture
def page(open_page: OpenPage, engine: FakeEngine) -> Page:
    return open_page()


def ask(page: Page, text: str) -> None:
    """Asks and waits for the end of the answer."""
    count = page.locator(ANSWER).count()
    page.fill("#composer", text)
    page.keyboard.press("Enter")
    expect(page.locator(ANSWER)).to_have_count(count + 1)
    wait_for_end(page)


def wait_for_end(page: Page) -> None:
    expect(page.locator("[aria-busy=true]")).to_have_count(0, timeout=20_000)


def questions(page: Page) -> list[str]:
    return [text.strip() for text in page.locator(f"{QUESTION} .bubble").all_inner_texts()]


def edit_first(page: Page, text: str) -> None:
    page.locator(QUESTION).first.hover()
    page.get_by_role("button", name="Edit").first.click()
    page.get_by_label("Edit your message").fill(text)
    page.keyboard.press("Enter")


def items(page: Page, address: str) -> list[dict[str, Any]]:
    conversation = page.url.rsplit("/", 1)[-1]
    listed = httpx.get(f"{address}/v1/conversations/{conversation}/items?order=asc&limit=100").json()
    data: list[dict[str, Any]] = listed["data"]
    return data


def test_an_edit_makes_a_branch_and_loses_nothing(page: Page, engine: FakeEngine) -> None:
    ask(page, "One")
    ask(page, "Two")
    edit_first(page, "Uno")
    wait_for_end(page)
    assert questions(page) == ["Uno"]
    page.locator(QUESTION).first.hover()
    page.get_by_role("button", name="Previous version").first.click()
    assert questions(page) == ["One", "Two"]
    page.reload()
    expect(page.locator(QUESTION)).to_have_count(1)
    assert questions(page) == ["Uno"]
    page.get_by_role("button", name="Previous version").first.click()
    assert questions(page) == ["One", "Two"]


def test_the_prompt_is_the_visible_path_only(page: Page, engine: FakeEngine) -> None:
    for answer in ("Answer A", "Answer B", "Answer C", "Answer D"):
        engine.enqueue(answer)
    ask(page, "One")
    ask(page, "Two")
    edit_first(page, "Uno")
    wait_for_end(page)
    ask(page, "Due")
    prompt = engine.submissions[-1].text
    assert all(text in prompt for text in ("Uno", "Answer C", "Due"))
    assert not any(text in prompt for text in ("One", "Two", "Answer A", "Answer B"))


def test_regenerated_answers_can_be_paged_through(page: Page, engine: FakeEngine) -> None:
    for answer in ("First", "Second", "Third"):
        engine.enqueue(answer)
    ask(page, "Question")
    for _ in range(2):
        page.get_by_role("button", name="Answer again").click()
        wait_for_end(page)
    expect(page.locator(ANSWER)).to_contain_text("Third")
    expect(page.locator(ANSWER)).to_contain_text("3 of 3")
    page.get_by_role("button", name="Previous version").click()
    expect(page.locator(ANSWER)).to_contain_text("Second")
    page.get_by_role("button", name="Side by side").click()
    expect(page.locator(ANSWER)).to_have_count(3)
    assert questions(page) == ["Question"]


def test_stop_keeps_what_was_delivered_and_the_next_turn_knows_it(page: Page, engine: FakeEngine, address: str) -> None:
    engine.delay_s = 0.02
    engine.enqueue("word " * 200)
    page.fill("#composer", "Go on and on")
    page.keyboard.press("Enter")
    expect(page.locator(ANSWER)).to_contain_text("word word")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_text("Stopped.", exact=True)).to_be_visible()
    engine.delay_s = 0
    ask(page, "What did you just say?")
    delivered = items(page, address)[1]
    assert delivered["status"] == "incomplete"
    text = delivered["content"][0]["text"]
    assert page.locator(f"{ANSWER} .prose").first.inner_text().split() == text.split()
    assert engine.submissions[-1].text.count(text) == 1


def test_what_is_asked_after_a_stop_before_the_first_word_follows_it(
    page: Page, engine: FakeEngine, address: str
) -> None:
    """The server has the stopped question then: what came next was taken for another version of it."""
    ask(page, "One")
    engine.paused = True
    page.fill("#composer", "Oh no")
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    expect(page.get_by_text("Stopped.", exact=True)).to_be_visible()
    engine.paused = False
    page.fill("#composer", "Two")
    page.keyboard.press("Enter")
    expect(page.locator(ANSWER).last).to_contain_text("You said: Two")
    assert questions(page) == ["One", "Oh no", "Two"]
    parents = {item["id"]: item["parent_id"] for item in items(page, address)}
    assert len(parents) == len(set(parents.values())) == 6


def test_a_reload_in_mid_answer_goes_on(page: Page, engine: FakeEngine) -> None:
    engine.delay_s = 0.01
    text = " ".join(f"word{number}" for number in range(60))
    engine.enqueue(text)
    page.fill("#composer", "Go on")
    page.keyboard.press("Enter")
    expect(page.locator(ANSWER)).to_contain_text("word3 ")
    page.reload()
    expect(page.locator(ANSWER)).to_contain_text("word59", timeout=20_000)
    wait_for_end(page)
    assert page.locator(f"{ANSWER} .prose").inner_text() == text


def test_a_reload_while_the_answer_waits_finds_it_again(page: Page, engine: FakeEngine) -> None:
    engine.paused = True
    page.fill("#composer", "Are you there?")
    page.keyboard.press("Enter")
    expect(page.locator("button.send[type=button]")).to_be_visible()
    page.wait_for_timeout(100)
    page.reload()
    expect(page.locator(QUESTION)).to_have_count(1)
    engine.paused = False
    expect(page.locator(ANSWER)).to_contain_text("You said: Are you there?")
    expect(page.locator(QUESTION)).to_have_count(1)


def test_an_answer_in_another_conversation_goes_on(page: Page, engine: FakeEngine) -> None:
    engine.delay_s = 0.01
    engine.enqueue("slow " * 60 + "end")
    page.fill("#composer", "First")
    page.keyboard.press("Enter")
    expect(page.locator(ANSWER)).to_contain_text("slow")
    page.get_by_role("button", name="New chat").first.click()
    expect(page.get_by_role("img", name="Answer running")).to_be_visible()
    expect(page.locator("#composer")).to_have_value("")
    page.get_by_role("button", name="First", exact=True).first.click()
    wait_for_end(page)
    expect(page.locator(ANSWER)).to_contain_text("end")


def test_search_rename_delete(page: Page, engine: FakeEngine) -> None:
    titles = page.locator("nav .title")
    ask(page, "Zebras in the wild")
    page.keyboard.press("Control+Shift+o")
    ask(page, "Quokkas at home")
    expect(titles.first).to_have_text("Quokkas at home")
    page.get_by_role("searchbox").fill("zebra")
    expect(titles).to_have_text(["Zebras in the wild"])
    titles.first.hover()
    page.get_by_role("button", name="Rename").first.click()
    page.get_by_label("Conversation title").fill("Striped horses")
    page.keyboard.press("Enter")
    page.get_by_role("searchbox").fill("")
    expect(page.get_by_role("button", name="Striped horses")).to_be_visible()
    page.get_by_role("button", name="Striped horses").hover()
    page.locator("li", has_text="Striped horses").get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("button", name="Striped horses")).to_have_count(0)
    expect(page.locator("h1")).to_have_text("Quokkas at home")


def test_settings_go_with_the_conversation(page: Page, engine: FakeEngine) -> None:
    page.keyboard.press("Control+,")
    page.get_by_label("System prompt").fill("Answer like a pirate.")
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_label("Priority").select_option("flex")
    page.get_by_role("button", name="Close").click()
    ask(page, "Ahoy")
    submission = engine.submissions[-1]
    assert "Answer like a pirate." in submission.text
    assert (submission.params.temperature, submission.priority) == (0.5, "flex")
    page.reload()
    expect(page.locator(ANSWER)).to_have_count(1)
    ask(page, "Again")
    assert engine.submissions[-1].params.temperature == 0.5
    assert "Answer like a pirate." in engine.submissions[-1].text


def test_a_conversation_of_another_client_is_called_after_its_first_question(
    page: Page, engine: FakeEngine, address: str
) -> None:
    conversation = httpx.post(f"{address}/v1/conversations", json={}).json()["id"]
    body = {"conversation": conversation, "input": "Who sees the badgers?"}
    httpx.post(f"{address}/v1/responses", json=body).raise_for_status()
    page.goto(f"{address}/#/c/{conversation}")
    expect(page.locator("h1")).to_have_text("Who sees the badgers?")
    page.reload()
    expect(page.locator("nav .title").first).to_have_text("Who sees the badgers?")


def test_where_nothing_is_set_the_model_is_sampled_as_recommended(page: Page, engine: FakeEngine) -> None:
    page.keyboard.press("Control+,")
    expect(page.get_by_label("Temperature")).to_have_attribute("placeholder", "0.3 (default)")
    page.get_by_label("Top-p").fill("0.5")
    page.get_by_role("button", name="Close").click()
    ask(page, "Ahoy")
    params = engine.submissions[-1].params
    assert (params.temperature, params.top_p, params.repetition_penalty) == (0.3, 0.5, 1.1)


def test_the_longest_answer_leaves_room_for_the_question(page: Page, engine: FakeEngine) -> None:
    page.keyboard.press("Control+,")
    page.get_by_label("Longest answer (tokens)").fill(str(engine.max_model_len))
    page.get_by_role("button", name="Close").click()
    ask(page, "Ahoy")
    assert engine.submissions[-1].params.max_tokens == engine.max_model_len // 2


def save_as(page: Page, name: str, path: Path) -> Path:
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("button", name=name).click()
    download.value.save_as(path)
    return path


def branches(page: Page, address: str) -> list[tuple[str | None, str, str]]:
    """(text of the parent, role, text) of all items of the conversation that is open."""
    found = items(page, address)
    texts = {item["id"]: item["content"][0]["text"] for item in found}
    return sorted((texts.get(item["parent_id"], ""), item["role"], texts[item["id"]]) for item in found)


def test_what_is_shown_can_be_saved_to_be_read(page: Page, engine: FakeEngine, tmp_path: Path) -> None:
    ask(page, "Remember this")
    edit_first(page, "Remember that")
    wait_for_end(page)
    saved = save_as(page, "Export as Markdown", tmp_path / "saved.md")
    assert saved.read_text() == "# Remember this\n\n## You\n\nRemember that\n\n## Answer\n\nYou said: Remember that\n"


def test_a_conversation_can_be_saved_and_brought_back_with_all_its_branches(
    page: Page, engine: FakeEngine, address: str, tmp_path: Path
) -> None:
    for number in range(12):
        engine.enqueue(f"Answer {number}")
        ask(page, f"Question {number}")
    page.get_by_role("button", name="Answer again").last.click()
    wait_for_end(page)
    edit_first(page, "Another beginning")
    wait_for_end(page)
    page.locator(QUESTION).first.hover()
    page.get_by_role("button", name="Previous version").first.click()
    shown, before = page.locator("article").all_inner_texts(), branches(page, address)
    saved = save_as(page, "Export as JSON", tmp_path / "saved.json")
    was_at = page.url
    page.locator("input[type=file]").set_input_files(saved)
    page.wait_for_url(lambda url: url != was_at)
    expect(page.locator(QUESTION)).to_have_count(12)
    assert branches(page, address) == before
    assert [text.split("\n")[0] for text in page.locator("article").all_inner_texts()] == [
        text.split("\n")[0] for text in shown
    ]
    ask(page, "And now?")
    assert engine.submissions[-1].text.count("Answer 10") == 1
    assert "Another beginning" not in engine.submissions[-1].text


def test_an_address_of_no_conversation_opens_a_new_one(open_page: OpenPage, engine: FakeEngine) -> None:
    page = open_page(may_fail=True)
    page.evaluate("location.hash = '#/c/conv_00000000000000000000000000000000'")
    expect(page.get_by_text("That did not work")).to_be_visible()
    expect(page.get_by_role("heading", name="What shall we talk about?")).to_be_visible()
    ask(page, "Hello")


def test_a_file_that_is_no_conversation_is_refused(page: Page, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"a": 1}')
    page.locator("input[type=file]").set_input_files(tmp_path / "other.json")
    expect(page.get_by_text("This file is not an exported conversation.")).to_be_visible()


def test_deleting_a_message_takes_what_followed_it(page: Page, engine: FakeEngine, address: str) -> None:
    ask(page, "One")
    ask(page, "Two")
    page.locator(QUESTION).nth(1).hover()
    page.locator(QUESTION).nth(1).get_by_role("button", name="Delete from here").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(page.locator(QUESTION)).to_have_count(1)
    page.wait_for_timeout(200)
    assert [item["role"] for item in items(page, address)] == ["user", "assistant"]


def test_a_restarted_server_is_found_again(open_page: OpenPage, tmp_path: Path) -> None:
    first = FakeEngine(delay_s=0.02)
    first.enqueue("before " * 500)
    with ServerThread(make_settings(tmp_path), first) as running:
        port = int(running.url.rsplit(":", 1)[1])
        page = open_page(address=running.url, may_fail=True)
        page.fill("#composer", "Go on")
        page.keyboard.press("Enter")
        expect(page.locator(ANSWER)).to_contain_text("before before")
    expect(page.get_by_text("No connection.")).to_be_visible()
    with ServerThread(make_settings(tmp_path, port=port), FakeEngine()):
        expect(page.get_by_text("No connection.")).to_have_count(0, timeout=30_000)
        wait_for_end(page)
        expect(page.locator(ANSWER)).to_contain_text("before before")
        ask(page, "Still there?")
        expect(page.locator(ANSWER).last).to_contain_text("You said: Still there?")


@pytest.mark.parametrize("is_last_deleted", [False, True])
def test_earlier_conversations_are_read_once(open_page: OpenPage, tmp_path: Path, is_last_deleted: bool) -> None:
    """A double press listed conversations twice, and the page stood still until it was loaded again."""
    with ServerThread(make_settings(tmp_path), FakeEngine()) as running:
        conversations = f"{running.url}/v1/conversations"
        created = [httpx.post(conversations, json={"metadata": {"title": f"Chat {number}"}}) for number in range(60)]
        page = open_page(address=running.url, may_fail=True)
        expect(page.locator("nav .title")).to_have_count(50)
        if is_last_deleted:
            httpx.delete(f"{conversations}/{created[10].json()['id']}").raise_for_status()
            page.get_by_role("button", name="Earlier").click()
            expect(page.locator("nav .title").last).to_have_text("Chat 9")
        page.get_by_role("button", name="Earlier").dblclick()
        expect(page.locator("nav .title")).to_have_count(59 if is_last_deleted else 60)
        ask(page, "Still alive?")


def test_a_conversation_without_a_title_has_one_name(open_page: OpenPage, address: str) -> None:
    conversation = httpx.post(f"{address}/v1/conversations", json={}).json()["id"]
    page = open_page()
    expect(page.locator("h1")).to_have_text("New chat")
    expect(page).to_have_title("New chat · chatsrv")
    page.locator("nav .title", has_text="Untitled").first.click()
    page.wait_for_url(f"**/{conversation}")
    expect(page.locator("h1")).to_have_text("Untitled")
    expect(page).to_have_title("Untitled · chatsrv")
