"""Other pages cannot use the browser of somebody who may: Origin and Host are checked before anything is accepted."""

from __future__ import annotations

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.chatsrv.conftest import RunningServer

EVIL_ORIGINS = [
    "https://evil.example",
    "null",
    "http://localhost:8000.evil.example",
    "http://127.0.0.1:1",
    "file://",
    "http://[::1",
]


@pytest.mark.parametrize("origin", EVIL_ORIGINS)
def test_foreign_origins_are_refused_on_both_transports(server: RunningServer, origin: str) -> None:
    answer = httpx.get(f"{server.url}/v1/models", headers={"Origin": origin})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")
    with pytest.raises(InvalidStatus) as caught, connect(server.ws_url, origin=origin):  # type: ignore[arg-type]
        pass
    assert caught.value.response.status_code == 403


def test_our_own_page_and_programs_are_let_in(server: RunningServer) -> None:
    for headers in ({}, {"Origin": server.url}):
        assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == 200
        with connect(server.ws_url, additional_headers=headers):
            pass


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:8000", "", "[::1"])
def test_rebound_names_are_refused(server: RunningServer, host: str) -> None:
    assert httpx.get(f"{server.url}/v1/models", headers={"Host": host}).status_code in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:99", "[::1]:8000", "LOCALHOST"])
def test_loopback_names_are_ours(server: RunningServer, host: str) -> None:
    assert httpx.get(f"{server.url}/v1/models", headers={"Host": host}).status_code == 200
