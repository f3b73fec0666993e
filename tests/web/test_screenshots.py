"""Pictures of the documentation; that of the engine room is taken where its demonstration is tested."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.web.conftest import OpenPage, Shoot
from tests.web.scripted import ScriptedServer

ARABIC = """يتكوّن قوس قزح عندما **ينكسر** ضوء الشمس داخل قطرات المطر ثم ينعكس منها.

1. يدخل الضوء الأبيض إلى القطرة فينكسر.
2. يتحلل إلى ألوانه، لأن لكل لون زاوية انكسار (angle of refraction) مختلفة.
3. ينعكس داخل القطرة ويخرج نحو العين.

```python
angle = {"red": 42.4, "violet": 40.5}  # degrees
```
"""


def ask(page: Page, text: str) -> None:
    page.fill("#composer", text)
    page.locator("button.send").click()


def test_a_conversation_with_the_demo_model(open_page: OpenPage, real_address: str, shoot: Shoot) -> None:
    page = open_page(address=real_address, color_scheme="light")
    page.keyboard.press("Control+,")
    page.get_by_label("Temperature").fill("0")
    page.get_by_label("Repetition penalty").fill("1")
    page.get_by_label("Longest answer (tokens)").fill("200")
    page.get_by_role("button", name="Close").click()
    for number, text in enumerate(
        ("What is the capital of France? Answer in one sentence.", "Write a Python function that adds two numbers."), 1
    ):
        ask(page, text)
        expect(page.locator("article[aria-label=Answer]")).to_have_count(number)
        expect(page.locator("[aria-busy=true]")).to_have_count(0, timeout=120_000)
    page.locator("#composer").focus()
    shoot(page, "chat.png")
    page.emulate_media(color_scheme="dark")
    shoot(page, "chat-dark.png")


def test_arabic_and_the_phone(open_page: OpenPage, real_address: str, script: ScriptedServer, shoot: Shoot) -> None:
    page = open_page(address=real_address, before=script.attach, locale="ar", color_scheme="light")
    ask(page, "اشرح كيف يتكوّن قوس قزح.")
    script.response(page).begin().write(ARABIC).end(chatsrv={"ttft_s": 0.08, "tokens_per_s": 118})
    expect(page.locator(".prose pre")).to_be_visible()
    shoot(page, "arabic.png")
    phone = open_page(address=real_address, phone=True, color_scheme="dark")
    expect(phone.get_by_role("heading", name="What shall we talk about?")).to_be_visible()
    shoot(phone, "phone.png")
