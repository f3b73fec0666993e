"""A server with keys asks the page's reader for one, and keeps it where no script can read it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from chatsrv.new_key import entry
from tests.chatsrv.conftest import ServerThread, make_settings
from tests.fakes import WatchedEngine
from tests.web.conftest import OpenPage
from tests.web.test_accessibility import serious_findings

USER_KEY, ADMIN_KEY = "a-key-of-enough-letters", "another-key-of-enough-letters"
ANSWER = "article[aria-label='Answer']"


@pytest.fixture(scope="module")
def locked_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("locked")
    keys = folder / "keys"
    keys.write_text(entry("ada", "user", USER_KEY) + entry("bob", "admin", ADMIN_KEY))
    with ServerThread(make_settings(folder / "data", api_keys=str(keys)), WatchedEngine()) as running:
        yield running.url


def sign_in(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("dialog").get_by_role("button", name="Sign in").click()


def ask(page: Page, text: str) -> None:
    expect(page.get_by_role("dialog")).to_have_count(0)  # while one is open, what is typed goes nowhere else
    page.fill("#composer", text)
    page.get_by_role("button", name="Send").click()
    expect(page.locator(ANSWER)).to_contain_text(f"You said: {text}")


def show_list(page: Page) -> None:
    """On a phone the list of conversations is behind a button."""
    if page.get_by_role("button", name="Show conversations").is_visible():
        page.get_by_role("button", name="Show conversations").click()


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_a_key_opens_the_page_and_a_wrong_one_does_not(open_page: OpenPage, locked_address: str, phone: bool) -> None:
    page = open_page(address=locked_address, may_fail=True, phone=phone, reduced_motion="reduce")
    expect(page.get_by_label("API key")).to_be_focused()
    assert serious_findings(page) == []
    sign_in(page, "wrong-key-of-enough-letters")
    expect(page.get_by_text("This key is not known here.")).to_be_visible()
    sign_in(page, f" {USER_KEY} ")  # as it is often pasted
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.reload()
    ask(page, "Hello")
    assert USER_KEY not in page.evaluate("document.cookie + JSON.stringify(localStorage)")


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
def test_signing_out_leaves_nothing_behind(open_page: OpenPage, locked_address: str, phone: bool) -> None:
    page = open_page(address=locked_address, may_fail=True, phone=phone)
    sign_in(page, USER_KEY)
    ask(page, "A secret")
    page.fill("#composer", "Half a secret")
    show_list(page)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("API key")).to_be_visible()
    assert "secret" not in page.content() + page.evaluate("JSON.stringify(localStorage)")
    page.reload()
    expect(page.get_by_label("API key")).to_be_visible()
    sign_in(page, ADMIN_KEY)
    show_list(page)
    expect(page.get_by_text("Your conversations will be listed here.")).to_be_visible()


def test_who_closes_the_dialog_is_left_in_peace(open_page: OpenPage, locked_address: str) -> None:
    """Each try to connect opened the dialog again, over a banner that told of no connection."""
    sockets: list[str] = []

    def watch(page: Page) -> None:
        page.on("websocket", lambda socket: sockets.append(socket.url))
        page.add_init_script(
            """addEventListener("DOMContentLoaded", () => {
              window.seen = "";
              new MutationObserver(() => (window.seen += document.body.innerText))
                .observe(document.body, { subtree: true, childList: true });
            });"""
        )

    page = open_page(address=locked_address, may_fail=True, before=watch)
    expect(page.get_by_label("API key")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_text("Sign in to go on.")).to_be_visible()
    page.wait_for_timeout(3000)  # first tries come within 2.5 s
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert len(sockets) == 1
    assert "No connection" not in page.evaluate("window.seen")
    page.get_by_role("main").get_by_role("button", name="Sign in").click()
    sign_in(page, USER_KEY)
    ask(page, "Hello")
    expect(page.get_by_text("Sign in to go on.")).to_have_count(0)


def test_a_conversation_that_was_asked_for_opens_after_the_sign_in(open_page: OpenPage, locked_address: str) -> None:
    page = open_page(address=locked_address, may_fail=True)
    sign_in(page, USER_KEY)
    ask(page, "Remember me")
    address = page.url
    page.context.clear_cookies()
    page.reload()
    sign_in(page, USER_KEY)
    expect(page.locator(ANSWER)).to_contain_text("You said: Remember me")
    expect(page.locator("h1")).to_have_text("Remember me")
    assert page.url == address


def test_only_an_admin_sees_the_engine_room(open_page: OpenPage, locked_address: str) -> None:
    page = open_page(address=locked_address, may_fail=True)
    page.keyboard.press("Escape")  # nobody is signed in
    page.get_by_role("button", name="Engine room").click()
    expect(page.get_by_text("The engine room takes an admin's key.")).to_be_visible()
    page.reload()
    sign_in(page, USER_KEY)
    page.get_by_role("button", name="Engine room").click()
    expect(page.get_by_text("The engine room takes an admin's key.")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    sign_in(page, ADMIN_KEY)
    page.get_by_role("button", name="Engine room").click()
    expect(page.get_by_role("heading", name="Block map")).to_be_visible()


def test_without_keys_there_is_nothing_to_sign_out_of(open_page: OpenPage) -> None:
    page = open_page()
    expect(page.get_by_role("button", name="Engine room")).to_be_visible()
    expect(page.get_by_role("button", name="Sign out")).to_have_count(0)
