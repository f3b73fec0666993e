"""axe-core finds nothing serious, in either language, theme and size."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.machine import missing
from tests.web.conftest import OpenPage
from tests.web.scripted import ScriptedServer

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"

ANSWER = """# Title

Text with `code`, **strong** and [a link](https://example.org).

```python
def f(x: int) -> str:  # comment
    return f"{x}" + str(1.5)
```

| a | b |
|---|--:|
| 1 | 2 |

> quoted
"""


def serious_findings(page: Page) -> list[str]:
    if not AXE.is_file():
        missing("axe-core (npm ci in web/)")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in found["violations"]
        if violation["impact"] in ("serious", "critical")
        for node in violation["nodes"]
    ]


@pytest.mark.parametrize("phone", [False, True], ids=["desktop", "phone"])
@pytest.mark.parametrize("locale", ["en-US", "ar"])
@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_a_conversation(
    open_page: OpenPage, script: ScriptedServer, color_scheme: str, locale: str, phone: bool
) -> None:
    page = open_page(
        before=script.attach, phone=phone, locale=locale, color_scheme=color_scheme, reduced_motion="reduce"
    )
    assert serious_findings(page) == []
    page.fill("#composer", "Hello")
    page.locator("button.send").click()
    response = script.response(page).begin().write(ANSWER)
    expect(page.locator(".prose table")).to_be_visible()
    assert serious_findings(page) == []
    response.end()
    expect(page.locator("button.send[type=submit]")).to_be_visible()
    assert serious_findings(page) == []


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_dialogs_and_notices(open_page: OpenPage, script: ScriptedServer, color_scheme: str) -> None:
    page = open_page(before=script.attach, color_scheme=color_scheme, reduced_motion="reduce")
    for key in ("Control+,", "Control+/"):
        page.keyboard.press(key)
        expect(page.get_by_role("dialog")).to_be_visible()
        assert serious_findings(page) == []
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("button", name="Appearance and language").click()
    assert serious_findings(page) == []
    page.keyboard.press("Escape")
    page.fill("#composer", "Hello")
    page.keyboard.press("Enter")
    response = script.response(page).begin().write("Half")
    response.emit("chatsrv.preempted", response_id="resp_0")
    expect(page.get_by_text("Paused")).to_be_visible()
    assert serious_findings(page) == []
    response.end("failed", error={"code": "server_error", "message": "It broke."})
    expect(page.get_by_role("alert")).to_be_visible()
    assert serious_findings(page) == []
    script.drop()
    expect(page.get_by_text("No connection.")).to_be_visible()
    assert serious_findings(page) == []


def test_the_page_of_a_right_to_left_language_is_mirrored(open_page: OpenPage, script: ScriptedServer) -> None:
    page = open_page(before=script.attach, locale="ar")
    assert page.evaluate("document.documentElement.dir") == "rtl"
    assert page.locator("nav").bounding_box()["x"] > 900
    page.fill("#composer", "مرحبا")
    page.locator("button.send").click()
    script.response(page).begin().write("العربية أولاً\n\nEnglish second, with (brackets).\n\n```\nx = 1\n```\n").end()
    blocks = page.locator(".prose > div")
    directions = [blocks.nth(number).evaluate("e => getComputedStyle(e).direction") for number in range(2)]
    assert directions == ["rtl", "ltr"]
    assert page.locator(".prose pre").evaluate("e => getComputedStyle(e).direction") == "ltr"


def test_the_language_can_be_changed_and_stays(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("button", name="Appearance and language").click()
    page.get_by_text("العربية").click()
    expect(page.get_by_role("dialog")).to_contain_text("المظهر")
    page.get_by_text("داكن").click()
    page.reload()
    expect(page.get_by_role("heading", name="عمّ نتحدث؟")).to_be_visible()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_no_motion_for_those_who_want_none(open_page: OpenPage, script: ScriptedServer) -> None:
    page = open_page(before=script.attach, reduced_motion="reduce")
    page.fill("#composer", "Hello")
    page.keyboard.press("Enter")
    script.response(page).begin()
    moving = "document.getAnimations().filter(a => a.playState === 'running').length"
    page.wait_for_timeout(50)
    assert page.evaluate(moving) == 0


SMALL_TARGETS = """least => [...document.querySelectorAll('button, input:not([type=checkbox]), select, textarea')]
  .map(element => [element, element.getBoundingClientRect()])
  .filter(([element, { width, height }]) => width > 0 && element.checkVisibility() && Math.min(width, height) < least)
  .map(([element, { width, height }]) => `${element.outerHTML.slice(0, 120)} ${width} x ${height}`)"""


def test_a_finger_hits_every_control(open_page: OpenPage, script: ScriptedServer) -> None:
    page = open_page(before=script.attach, phone=True)
    page.fill("#composer", "Hello")
    page.locator("button.send").tap()
    script.response(page).begin().write(ANSWER).end()
    expect(page.locator("button.send[type=submit]")).to_be_visible()
    assert page.evaluate(SMALL_TARGETS, 44) == []
    page.get_by_role("button", name="Conversation settings").tap()
    expect(page.get_by_role("dialog")).to_be_visible()
    assert page.evaluate(SMALL_TARGETS, 44) == []
    page.get_by_role("button", name="Close").tap()
    page.get_by_role("button", name="Show conversations").tap()
    expect(page.get_by_role("searchbox")).to_be_visible()
    assert page.evaluate(SMALL_TARGETS, 44) == []
