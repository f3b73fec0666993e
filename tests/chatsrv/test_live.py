"""The engine room's feed."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from chatsrv.new_key import entry
from tests.chatsrv.conftest import ServerThread
from tests.fakes import NUM_BLOCKS, WatchedEngine


@pytest.fixture
def feed(serve: Callable[..., ServerThread]) -> Iterator[ClientConnection]:
    with serve(WatchedEngine()) as running:
        address = running.url.replace("http", "ws", 1) + "/v1/engine/live"
        with connect(address) as connection:
            yield connection


def read(feed: ClientConnection, kind: str = "engine.snapshot") -> dict[str, Any]:
    while True:
        message: dict[str, Any] = json.loads(feed.recv(timeout=10))
        if message["type"] == kind:
            return message


def test_pictures_come_by_themselves(feed: ClientConnection) -> None:
    picture = read(feed)
    trace = picture["trace"]
    assert base64.b64decode(trace["states"])[:7] == bytes([2, 2, 2, 2, 1, 1, 0])
    assert base64.b64decode(trace["references"])[0] == 2
    assert [request["block_tables"] for request in trace["requests"]] == [[[0, 1]], [[0, 2, 3]], [[]]]
    assert trace["steps"][0]["shares"] == [["request-a", 0, 1], ["request-b", 16, 0]]
    assert picture["gauges"]["waste"] == 0.25
    assert picture["gauges"]["num_waiting"]["flex"] == 1
    assert read(feed)["time_s"] > picture["time_s"]


def test_the_reader_sets_the_pace(feed: ClientConnection) -> None:
    feed.send('{"type": "engine.rate", "hz": 20}')
    times = [read(feed)["time_s"] for _ in range(10)]
    assert min(later - earlier for earlier, later in pairwise(times)) < 0.2


def test_a_block_can_be_looked_at(feed: ClientConnection) -> None:
    feed.send('{"type": "engine.inspect", "block": 4}')
    assert read(feed, "engine.block") == {
        "type": "engine.block",
        "block": 4,
        "key": "ab" * 32,
        "num_references": 0,
        "age_steps": 3,
    }


def test_a_demonstration_is_shown_instead_of_the_engine(feed: ClientConnection) -> None:
    assert read(feed)["scene"] is None
    feed.send('{"type": "engine.rate", "hz": 20}')
    feed.send('{"type": "engine.demonstrate", "on": true}')
    while (picture := read(feed))["scene"] is None:
        pass
    assert picture["scene"] == "paging"
    assert len(base64.b64decode(picture["trace"]["states"])) == 40
    assert picture["trace"]["requests"][0]["request_id"] == "question-1"
    feed.send('{"type": "engine.inspect", "block": 39}')
    assert read(feed, "engine.block")["num_references"] == 0
    feed.send('{"type": "engine.demonstrate", "on": false}')
    while (picture := read(feed))["scene"] is not None:
        pass
    assert picture["trace"]["requests"][0]["request_id"] == "request-a"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("not json", None),
        ('{"type": "engine.stop"}', "type"),
        ('{"type": "engine.rate", "hz": 1000}', "hz"),
        ('{"type": "engine.rate", "hz": "fast"}', "hz"),
        ('{"type": "engine.inspect", "block": -1}', "block"),
        ('{"type": "engine.demonstrate", "on": 1}', "on"),
        (f'{{"type": "engine.inspect", "block": {NUM_BLOCKS}}}', "block"),
    ],
)
def test_a_wrong_message_is_answered_and_the_feed_goes_on(
    feed: ClientConnection, message: str, param: str | None
) -> None:
    feed.send(message)
    error = read(feed, "error")
    assert (error["status"], error["error"]["param"]) == (400, param)
    read(feed)


@pytest.mark.parametrize(("role", "may_look"), [("admin", True), ("user", False)])
def test_with_keys_only_an_admin_may_look(
    serve: Callable[..., ServerThread], tmp_path: Path, role: str, may_look: bool
) -> None:
    keys, key = tmp_path / "keys", "a-key-of-enough-letters"
    keys.write_text(entry("ada", role, key))
    with serve(WatchedEngine(), api_keys=str(keys)) as running:
        address = running.url.replace("http", "ws", 1) + "/v1/engine/live"
        headers = {"Authorization": f"Bearer {key}"}
        if may_look:
            with connect(address, additional_headers=headers) as connection:
                read(connection)
        else:
            with pytest.raises(InvalidStatus) as refusal:
                connect(address, additional_headers=headers)
            assert refusal.value.response.status_code == 403
