"""What an attacker would send, over the whole server: it is refused by name, nothing is kept, the session goes on."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.chatsrv.conftest import RunningServer
from tests.chatsrv.sockets import Socket, output_text

# What is refused before it is stored does not depend on the store.
pytestmark = pytest.mark.parametrize("shared_server", ["embedded"], indirect=True)

LONE = "hi \\ud83d"  # escaped in JSON: half of a pair


def _post(server: RunningServer, path: str, body: str) -> httpx.Response:
    return httpx.post(server.url + path, content=body, timeout=20)


def _assert_refused(answer: httpx.Response, param: str) -> None:
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["param"].startswith(param)
    assert "Error" not in error["message"]  # no name of an exception


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/responses", '{"input": "%s"}', "input"),
        ("/v1/responses", '{"input": "x", "instructions": "%s"}', "instructions"),
        ("/v1/responses", '{"input": "x", "stop": ["%s"]}', "stop"),
        ("/v1/responses", '{"input": "x", "metadata": {"title": "%s"}}', "metadata"),
        ("/v1/conversations", '{"metadata": {"title": "%s"}}', "metadata"),
        ("/v1/chat/completions", '{"messages": [{"role": "user", "content": "%s"}]}', "messages"),
        ("/v1/completions", '{"prompt": "%s"}', "prompt"),
        ("/tokenize", '{"prompt": "%s"}', "prompt"),
        ("/v1/login", '{"key": "%s"}', "key"),
    ],
)
def test_half_a_character_is_refused_wherever_it_stands(
    server: RunningServer, path: str, body: str, param: str
) -> None:
    _assert_refused(_post(server, path, body % LONE), param)
    assert server.engine.submissions == []


def test_a_session_goes_on_after_half_a_character(server: RunningServer) -> None:
    with Socket(server) as socket:
        first = socket.ask("x")
        frame = {"type": "response.create", "input": "LONE", "previous_response_id": first["id"]}
        socket.connection.send(json.dumps(frame).replace("LONE", LONE))
        assert socket.recv()["error"]["param"].startswith("input")
        assert output_text(socket.ask("y", previous_response_id=first["id"])) == "You said: y"


@pytest.mark.parametrize("value", ["0", "-1", "1.5", '"10"', "true", "9223372036854775808", "[]"])
def test_limits_that_are_no_limits_are_refused_before_anything_is_queued(server: RunningServer, value: str) -> None:
    _assert_refused(_post(server, "/v1/responses", f'{{"input": "x", "max_output_tokens": {value}}}'), "max_output")
    chat = f'{{"messages": [{{"role": "user", "content": "x"}}], "max_completion_tokens": {value}}}'
    _assert_refused(_post(server, "/v1/chat/completions", chat), "max_completion")
    _assert_refused(_post(server, "/v1/completions", f'{{"prompt": "x", "max_tokens": {value}}}'), "max_tokens")
    assert server.engine.submissions == []


STRANGE_IDS = [
    "a:b",
    "../x",
    "*",
    "{x}",
    "resp_*",
    "resp_" + "x" * 31 + "\n",
    "conv_{x}",
    "x\ny",
    "x" * 10_000,
    "%00",
    "é",
]


@pytest.mark.parametrize("identifier", STRANGE_IDS)
def test_strange_identifiers_do_not_exist(server: RunningServer, identifier: str) -> None:
    """They would become part of keys in the store."""
    quoted = quote(identifier, safe="")
    for method, path in [
        ("GET", "/v1/responses/{}"),
        ("DELETE", "/v1/responses/{}"),
        ("POST", "/v1/responses/{}/cancel"),
        ("GET", "/v1/conversations/{}"),
        ("DELETE", "/v1/conversations/{}"),
        ("GET", "/v1/conversations/{}/items"),
        ("GET", f"/v1/conversations/conv_{'x' * 32}/items/{{}}"),
    ]:
        answer = httpx.request(method, server.url + path.format(quoted))
        assert answer.status_code in (404, 405), f"{method} {path}: {answer.status_code}"
    answers: list[Any] = []
    with Socket(server) as socket:
        for event in (
            {"type": "response.create", "input": "x", "previous_response_id": identifier},
            {"type": "response.create", "input": "x", "conversation": identifier},
            {"type": "response.cancel", "response_id": identifier},
            {"type": "response.resume", "response_id": identifier},
        ):
            socket.send(event.pop("type"), **event)
            answers.append(socket.recv())
    assert {answer["type"] for answer in answers} == {"error"}
    assert {answer["status"] for answer in answers} <= {400, 404}
    assert server.engine.submissions == []
