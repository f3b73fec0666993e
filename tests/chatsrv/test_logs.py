"""The log names the request and its owner, and nothing of what was written."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from chatsrv.keyring import LOCAL
from chatsrv.logs import CURRENT, TEXTS, JsonFormatter, set_up
from chatsrv.settings import ServerSettings
from tests.chatsrv.conftest import RunningServer, wait_until
from tests.chatsrv.sockets import Socket


def _record(message: str, *arguments: object, exc_info: Any = None, extra: Any = None) -> logging.LogRecord:
    logger = logging.getLogger("chatsrv")
    return logger.makeRecord("chatsrv", logging.WARNING, "", 1, message, arguments, exc_info, extra=extra)


def test_a_line_is_one_json_object() -> None:
    token = CURRENT.set({"request_id": "abc", "caller": LOCAL})
    try:
        raise ValueError("two\nlines")
    except ValueError:
        record = _record("bad \ud800 %s", "news\n", exc_info=sys.exc_info(), extra={"fields": {"status": 500}})
        text = JsonFormatter().format(record)
    finally:
        CURRENT.reset(token)
    assert "\n" not in text
    line = json.loads(text)
    assert line.pop("time").endswith("Z")
    assert "two\nlines" in line.pop("exception")
    assert line == {
        "level": "warning",
        "logger": "chatsrv",
        "message": "bad ? news\n",
        "request_id": "abc",
        "owner": "local",
        "status": 500,
    }


def test_outside_of_a_request_there_is_no_id() -> None:
    line = json.loads(JsonFormatter().format(_record("x")))
    assert line.keys() == {"time", "level", "logger", "message"}


def test_nothing_of_a_conversation_is_logged_not_even_in_detail(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.engine.enqueue("a private answer")
    with Socket(server) as socket:
        conversation = server.client().conversations.create(metadata={"title": "a private title"}).id
        socket.ask("a private question", conversation=conversation, instructions="a private instruction")
        socket.create("a private mistake", temperature="a private value")
        socket.answer()
    server.client().responses.create(input="a private question")
    server.client().completions.create(model="fake", prompt="a private prompt")
    lines = [JsonFormatter().format(record) for record in caplog.records if record.name.startswith("chatsrv")]
    assert any('"status":"completed"' in line for line in lines)
    assert not [line for line in lines if "private" in line]


def _set_up(monkeypatch: pytest.MonkeyPatch, settings: ServerSettings) -> logging.Logger:
    """A set-up that ends with the test; returns its root."""
    root = logging.RootLogger(logging.WARNING)
    monkeypatch.setattr(logging, "root", root)
    monkeypatch.setattr(TEXTS, "disabled", True)
    set_up(settings)
    return root


def test_texts_are_logged_where_a_setting_asks_for_it(
    server: RunningServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    _set_up(monkeypatch, replace(server.settings, log_texts=True))
    caplog.set_level(logging.INFO, "chatsrv")
    for _ in range(4):
        server.engine.enqueue("the\nanswer")
    client = server.client()
    response = client.responses.create(input="a question", instructions="a rule")
    messages: Any = [{"role": "system", "content": "a rule"}, {"role": "user", "content": "a question"}]
    chat = client.chat.completions.create(model="fake", messages=messages)
    legacy = client.completions.create(model="fake", prompt="a prompt", n=2, max_tokens=99)
    wait_until(lambda: len([record for record in caplog.records if record.name == "chatsrv.texts"]) == 3)
    assert [record.getMessage() for record in caplog.records if record.name == "chatsrv.texts"] == [
        rf"{response.id} was asked ['a question'] and answered ['the\nanswer']",
        rf"{chat.id} was asked ['a rule', 'a question'] and answered ['the\nanswer']",
        rf"{legacy.id} was asked 'a prompt' and answered ['the\nanswer', 'the\nanswer']",
    ]


def test_a_refused_socket_is_no_error(
    server: RunningServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else whoever reaches the port could fill the log with them."""
    _set_up(monkeypatch, server.settings)
    caplog.set_level(logging.INFO, "chatsrv")
    with pytest.raises(InvalidStatus), Socket(server, origin="http://elsewhere"):
        pass
    wait_until(lambda: any(record.name == "chatsrv.access" for record in caplog.records))
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("kind", ["text", "json"])
def test_the_setting_picks_the_form(kind: str, monkeypatch: pytest.MonkeyPatch, server: RunningServer) -> None:
    root = _set_up(monkeypatch, replace(server.settings, log_format=kind, log_level="error"))
    (handler,) = root.handlers
    assert isinstance(handler.formatter, JsonFormatter) is (kind == "json")
    assert root.level == logging.ERROR
