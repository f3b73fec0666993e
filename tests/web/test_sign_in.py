"""A server with keys asks the page's reader for one, and keeps it where no script can read it."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from chatsrv.new_key import entry
from tests.chatsrv.conftest import ServerThread, make_settings
from tests.fakes import FakeEngine
from tests.web.conftest import OpenPage

KEY = "a-key-of-enough-letters"


def test_a_key_opens_the_page_and_a_wrong_one_does_not(open_page: OpenPage, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(entry("ada", "user", KEY))
    with ServerThread(make_settings(tmp_path / "data", api_keys=str(keys)), FakeEngine()) as running:
        page = open_page(address=running.url, may_fail=True)
        page.get_by_label("API key").fill("wrong-key-of-enough-letters")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("This key is not known here.")).to_be_visible()
        page.get_by_label("API key").fill(KEY)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.reload()
        page.fill("#composer", "Hello")
        page.keyboard.press("Enter")
        expect(page.locator("article[aria-label='Answer']")).to_contain_text("You said: Hello")
        assert KEY not in page.evaluate("document.cookie + JSON.stringify(localStorage)")
