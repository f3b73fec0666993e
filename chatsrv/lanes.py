"""Lanes of a socket: the creates of one ``stream_id`` run one after the other, lanes beside each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from chatsrv.account import Account
from chatsrv.errors import Busy, InvalidField
from chatsrv.wire.create import ResponseCreate

MAX_NAMED_LANES = 32
MAX_ACTIVE = 16
MAX_QUEUED_PER_LANE = 64


class Lanes:
    """The lanes of one socket.

    Args:
        answer: generates one response and returns when its last event has been sent.
        account: of the key, which limits how many creates may wait.
    """

    def __init__(self, answer: Callable[[ResponseCreate], Awaitable[None]], account: Account) -> None:
        self._answer = answer
        self._account = account
        self._num_queued = 0
        self._queues: dict[str | None, asyncio.Queue[ResponseCreate]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._active = asyncio.Semaphore(MAX_ACTIVE)

    def put(self, request: ResponseCreate) -> None:
        """Queue a create in its lane.

        Raises:
            InvalidField: one named lane too many.
            Busy: the lane is full, or the key has as many waiting as it may.
        """
        queue = self._queue(request.stream_id)
        if queue.full():
            raise Busy(f"{MAX_QUEUED_PER_LANE} creates are waiting in this lane, the most it holds")
        self._account.take("queued")
        self._num_queued += 1
        queue.put_nowait(request)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        while self._num_queued:
            self._leave_queue()

    def _leave_queue(self) -> None:
        self._num_queued -= 1
        self._account.give_back("queued")

    def _queue(self, stream_id: str | None) -> asyncio.Queue[ResponseCreate]:
        if stream_id in self._queues:
            return self._queues[stream_id]
        if stream_id is not None and len(self._queues.keys() - {None}) >= MAX_NAMED_LANES:
            message = f"stream_id: a socket may use {MAX_NAMED_LANES} named lanes, and this would be one more"
            raise InvalidField("stream_id", message, code="websocket_stream_limit_reached")
        queue = self._queues[stream_id] = asyncio.Queue(MAX_QUEUED_PER_LANE)
        self._tasks.append(asyncio.create_task(self._run(queue), name=f"lane {stream_id}"))
        return queue

    async def _run(self, queue: asyncio.Queue[ResponseCreate]) -> None:
        while True:
            request = await queue.get()
            async with self._active:
                self._leave_queue()
                await self._answer(request)
