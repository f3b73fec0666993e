"""Server-sent events: frames as clients parse them, and readers that leave, sleep or do not read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest

from chatsrv import sse
from chatsrv.errors import NotResumable
from chatsrv.sse import EventStream, frame, response_frames
from chatsrv.wire.events import Entry


class Client:
    """The ASGI side of one HTTP client."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.is_reading = asyncio.Event()
        self.is_reading.set()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        await self.is_reading.wait()
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


class Source:
    """Chunks that wait between the first and the second until they are let go."""

    def __init__(self) -> None:
        self.is_closed = False
        self.go_on = asyncio.Event()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"one "
            await self.go_on.wait()
            yield b"two"
        finally:
            self.is_closed = True


async def _start(source: Source, client: Client) -> asyncio.Task[None]:
    stream = EventStream(source.chunks())
    task = asyncio.create_task(stream({"type": "http"}, client.receive, client.send))
    await asyncio.sleep(0.01)
    return task


async def test_all_chunks_arrive_and_the_body_ends_once() -> None:
    source, client = Source(), Client()
    source.go_on.set()
    await (await _start(source, client))
    assert client.body == b"one two"
    assert [message.get("more_body") for message in client.sent] == [None, True, True, False]
    assert dict(client.sent[0]["headers"])[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert source.is_closed


async def test_a_client_that_leaves_ends_the_source_at_once() -> None:
    source, client = Source(), Client()
    task = await _start(source, client)
    client.gone.set()
    await asyncio.wait_for(task, 5)
    assert source.is_closed
    assert client.body == b"one "


async def test_a_client_that_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "SEND_TIMEOUT_S", 0.02)
    source, client = Source(), Client()
    task = await _start(source, client)
    client.is_reading.clear()
    source.go_on.set()
    await asyncio.wait_for(task, 5)
    assert source.is_closed
    assert client.body == b"one "


async def test_a_silent_stream_is_kept_alive_by_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "KEEP_ALIVE_S", 0.005)
    source, client = Source(), Client()
    task = await _start(source, client)
    await asyncio.sleep(0.05)
    source.go_on.set()
    await task
    assert client.body.startswith(b"one : keep-alive\n\n")
    assert client.body.endswith(b"two")


def test_a_frame_names_its_event() -> None:
    assert frame("response.created", b'{"a":1}') == b'event: response.created\ndata: {"a":1}\n\n'


async def _batches(*batches: list[Entry] | Exception) -> AsyncGenerator[list[Entry], None]:
    for batch in batches:
        if isinstance(batch, Exception):
            raise batch
        yield batch


async def _frames(*batches: list[Entry] | Exception) -> list[bytes]:
    async with aclosing(response_frames(_batches(*batches))) as frames:
        return [chunk async for chunk in frames]


async def test_a_batch_of_events_is_sent_as_one_chunk() -> None:
    first, second = Entry(0, "a", b"1"), Entry(1, "b", b"2")
    assert await _frames([first, second], [second]) == [
        b"event: a\ndata: 1\n\nevent: b\ndata: 2\n\n",
        b"event: b\ndata: 2\n\n",
    ]


async def test_what_breaks_on_the_way_is_told_as_the_last_event() -> None:
    _, last = await _frames([Entry(0, "a", b"1")], NotResumable("the events are gone", response=None))
    assert last.startswith(b"event: error\ndata: ")
    error = msgspec.json.decode(last.removeprefix(b"event: error\ndata: "))
    assert (error["type"], error["code"], error["message"]) == ("error", "not_resumable", "the events are gone")
    assert error["sequence_number"] == 0
