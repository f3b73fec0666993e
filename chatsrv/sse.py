"""Server-sent events: a stream that notices when its reader leaves, sleeps or reads too slowly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from starlette.types import Receive, Scope, Send

from chatsrv.failures import answer_to
from chatsrv.wire.events import Entry, StreamError

KEEP_ALIVE_S = 15.0
SEND_TIMEOUT_S = 30.0

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # proxies pass it on at once
]


class EventStream:
    """An ASGI response that sends what a generator yields, and closes it when the client has gone."""

    def __init__(self, chunks: AsyncGenerator[bytes, None]) -> None:
        self._chunks = chunks
        self._sending = asyncio.Lock()
        self._was_idle = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        jobs = {
            asyncio.create_task(self._send_all(send)),
            asyncio.create_task(self._keep_alive(send)),
            asyncio.create_task(_disconnected(receive)),
        }
        try:
            await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            await self._chunks.aclose()

    async def _send_all(self, send: Send) -> None:
        async for chunk in self._chunks:
            await self._send(send, chunk, more=True)
            self._was_idle = False
        await self._send(send, b"", more=False)

    async def _keep_alive(self, send: Send) -> None:
        while True:
            self._was_idle = True
            await asyncio.sleep(KEEP_ALIVE_S)
            if self._was_idle:
                await self._send(send, b": keep-alive\n\n", more=True)

    async def _send(self, send: Send, chunk: bytes, more: bool) -> None:
        async with self._sending, asyncio.timeout(SEND_TIMEOUT_S):
            await send({"type": "http.response.body", "body": chunk, "more_body": more})


def frame(kind: str, data: bytes) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n"


async def response_frames(batches: AsyncGenerator[list[Entry], None]) -> AsyncGenerator[bytes, None]:
    """Events of a response as SSE frames, a batch at a time. What breaks on the way is told as an ``error`` event."""
    last = -1
    try:
        async with aclosing(batches):
            async for batch in batches:
                last = batch[-1].sequence_number
                yield b"".join(frame(entry.type, entry.data) for entry in batch)
    except Exception as error:
        body = answer_to(error).body()
        told = StreamError(code=body.code, message=body.message, param=body.param, sequence_number=last)
        yield frame("error", msgspec.json.encode(told))


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
