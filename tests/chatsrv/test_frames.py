"""Frames as other clients send them, and 20,000 that nobody should send."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedError

from tests.chatsrv.conftest import RunningServer
from tests.chatsrv.sockets import ENDS, Socket, output_text

NUM_MALFORMED = 20_000

CREATE = json.dumps({"type": "response.create", "input": "hello", "stream_id": "a", "temperature": 0.5, "store": False})


@pytest.mark.parametrize("compression", ["deflate", None])
def test_fragments_pings_and_compression(server: RunningServer, compression: str | None) -> None:
    server.engine.delay_s = 0.002
    with Socket(server, compression=compression) as socket:
        frame = json.dumps({"type": "response.create", "input": "wörld 🦊"}, ensure_ascii=False)
        socket.connection.send(iter([frame[:9], frame[9:40], frame[40:]]))
        events = []
        while not events or events[-1]["type"] not in ENDS:
            events.append(socket.recv())
            if len(events) % 5 == 0:
                assert socket.connection.ping().wait(5)
    assert output_text(events[-1]["response"]) == "You said: wörld 🦊"


@pytest.mark.parametrize("code", [1000, 1001, 1003, 1007, 1008, 1009, 1011, 3000, 4999])
def test_every_close_code_leaves_the_response_to_be_resumed(server: RunningServer, code: int) -> None:
    server.engine.delay_s = 0.002
    with Socket(server) as socket, Socket(server) as other:
        socket.create("x")
        response_id = socket.until("response.in_progress")[0]["response"]["id"]
        socket.connection.close(code)
        other.send("response.resume", response_id=response_id)
        assert output_text(other.answer()[-1]["response"]) == "You said: x"


def test_a_frame_beyond_the_limit_is_refused_and_the_socket_goes_on(server: RunningServer) -> None:
    limit = server.settings.max_message_bytes
    with Socket(server) as socket:
        socket.connection.send("x" * (limit + 1))
        refusal = socket.recv()
        assert (refusal["status"], refusal["error"]["code"]) == (413, "request_too_large")
        assert str(limit) in refusal["error"]["message"]
        assert socket.ask("x")["status"] == "completed"


def test_a_huge_frame_closes_its_socket_only(server: RunningServer) -> None:
    with Socket(server) as other, Socket(server) as socket:
        with suppress(ConnectionClosedError):
            socket.connection.send("x" * (2 * server.settings.max_message_bytes + 1))
        with pytest.raises(ConnectionClosedError):
            socket.recv()
        assert other.ask("x")["status"] == "completed"


@pytest.mark.parametrize("shared_server", ["embedded"], indirect=True)
async def test_malformed_frames_are_answered_and_nothing_breaks(server: RunningServer) -> None:
    chance = random.Random(7)
    frames = [_malformed(chance) for _ in range(NUM_MALFORMED)]
    async with connect(server.ws_url, max_queue=None) as connection:
        reading = asyncio.create_task(_read_until_done(connection))
        for frame in frames:
            await connection.send(frame)
        await connection.send(json.dumps({"type": "response.create", "input": "alive?", "stream_id": "last-one"}))
        events = await reading
    errors = [event for event in events if event["type"] == "error"]
    assert len(errors) > NUM_MALFORMED * 0.8
    assert {error["status"] for error in errors} <= {400, 404, 429}
    assert all(error["error"]["message"] for error in errors)
    assert output_text(events[-1]["response"]) == "You said: alive?"


async def _read_until_done(connection: ClientConnection) -> list[dict[str, Any]]:
    events = []
    async for frame in connection:
        events.append(json.loads(frame))
        if events[-1]["type"] in ENDS and events[-1].get("stream_id") == "last-one":
            break
    return events


def _malformed(chance: random.Random) -> str | bytes:
    """A proper create with something cut, flipped, repeated, replaced, or in a binary frame."""
    position = chance.randrange(len(CREATE))
    junk = "".join(chance.choices('{}[]":,\\\x00 e9-NaN\U0001f98a', k=chance.randrange(1, 9)))
    match chance.randrange(6):
        case 0:
            return CREATE[:position]
        case 1:
            return CREATE[:position] + junk + CREATE[position:]
        case 2:
            return CREATE[:position] + junk + CREATE[position + len(junk) :]
        case 3:
            return chance.randbytes(chance.randrange(64))
        case 4:
            fields = json.loads(CREATE)
            fields[chance.choice(list(fields))] = chance.choice([None, -1, 1e300, [], {}, "x" * 300, [[[]]], True])
            return json.dumps(fields | {"max_output_tokens": chance.choice([0, -5, 1.5, "7", 2**40])})
        case _:
            return junk
