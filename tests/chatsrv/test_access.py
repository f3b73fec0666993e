"""Each request has an id that goes back to the client, and one line in the log."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest
from websockets.sync.client import connect

from tests.chatsrv.conftest import RunningServer, wait_until


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "chatsrv.access")
    return caplog


def _fields(lines: pytest.LogCaptureFixture, status: int, level: int = logging.INFO) -> list[dict[str, Any]]:
    """Of the lines with this status: that of an earlier test's request may come late."""
    found = [record for record in lines.records if record.name == "chatsrv.access" and record.levelno == level]
    return [fields for record in found if (fields := vars(record)["fields"])["status"] == status]


@pytest.mark.parametrize(
    ("given", "is_taken"), [("from-the-proxy_1.2", True), ("", False), ("a b", False), ("x" * 65, False), ("ä", False)]
)
def test_an_id_comes_from_the_proxy_or_is_made(server: RunningServer, given: str, is_taken: bool) -> None:
    answer = httpx.get(f"{server.url}/v1/models", headers={"X-Request-Id": given.encode()})
    assert answer.status_code == 200
    found = answer.headers["x-request-id"]
    assert found.isascii()
    assert (found == given) is is_taken


def test_the_official_client_knows_the_id(server: RunningServer) -> None:
    assert len(server.client().responses.create(input="x")._request_id or "") == 16


def test_a_request_leaves_one_line(server: RunningServer, lines: pytest.LogCaptureFixture) -> None:
    httpx.get(f"{server.url}/v1/models/nothing")
    wait_until(lambda: len(_fields(lines, 404)) == 1)
    (fields,) = _fields(lines, 404)
    assert fields.pop("duration_s") >= 0
    assert fields == {"method": "GET", "route": "/v1/models/{model:path}", "status": 404}


def test_a_socket_leaves_one_line_at_its_end_and_has_an_id(
    server: RunningServer, lines: pytest.LogCaptureFixture
) -> None:
    with connect(server.ws_url) as socket:
        assert socket.response is not None
        assert socket.response.headers["x-request-id"]
        assert not _fields(lines, 101)
    wait_until(lambda: len(_fields(lines, 101)) == 1)


def test_probes_are_quiet(server: RunningServer, lines: pytest.LogCaptureFixture) -> None:
    httpx.get(f"{server.url}/healthz")
    wait_until(lambda: len(_fields(lines, 200, logging.DEBUG)) == 1)
    assert [fields["route"] for fields in _fields(lines, 200, logging.DEBUG)] == ["/healthz"]
    assert "/healthz" not in [fields["route"] for fields in _fields(lines, 200)]


def test_what_breaks_is_a_500_with_the_id(
    server: RunningServer, lines: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chatsrv.endpoints.models._model", lambda engine: 1 / 0)
    answer = httpx.get(f"{server.url}/v1/models")
    assert answer.status_code == 500
    assert answer.headers["x-request-id"]
    wait_until(lambda: len(_fields(lines, 500)) == 1)
