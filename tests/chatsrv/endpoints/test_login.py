"""Signing in from a page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import httpx

from chatsrv.new_key import entry
from tests.chatsrv.conftest import ServerThread
from tests.chatsrv.sockets import Socket

ADA = "ada-key-0123456789"


def test_the_page_signs_in_with_a_cookie_that_scripts_cannot_read(
    serve: Callable[..., ServerThread], tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text(entry("ada", "user", ADA))
    with serve(api_keys=str(keys)) as guarded, httpx.Client(base_url=guarded.url) as browser:
        assert browser.post("/v1/login", json={"key": "wrong-key-000000000"}).status_code == 401
        answer = browser.post("/v1/login", json={"key": ADA})
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Secure" not in cookie
        through_tls = {"X-Forwarded-Proto": "https"}
        elsewhere = httpx.post(f"{guarded.url}/v1/login", json={"key": ADA}, headers=through_tls)
        assert "Secure" in elsewhere.headers["set-cookie"]
        assert answer.json() == {"role": "user"}
        assert browser.get("/v1/models").status_code == 200
        name, value = next(iter(browser.cookies.items()))
        with Socket(guarded, additional_headers={"Cookie": f"{name}={value}"}) as signed_in:
            assert signed_in.ask("x")["status"] == "completed"
        browser.request("DELETE", "/v1/login")
        assert browser.get("/v1/models").status_code == 401
