"""Tasks end though a library swallows a cancellation, or they fail on the way."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from chatsrv import tasks


async def test_who_loses_a_cancellation_is_cancelled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "CANCEL_AGAIN_S", 0.05)

    async def deaf() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def broken() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("on the way out")

    running = [asyncio.create_task(deaf()), asyncio.create_task(broken())]
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await tasks.end(running)
    assert all(task.done() for task in running)


async def test_nothing_to_end() -> None:
    await tasks.end([])
