"""Ending tasks that run for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

CANCEL_AGAIN_S = 1.0


async def end(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel, and wait for the end, whatever it is.

    Python 3.11's ``wait_for``, by which redis-py sends, loses a cancellation that comes as it ends. So who still runs
    after a while is cancelled again.
    """
    running = set(tasks)
    while running:
        for task in running:
            task.cancel()
        ended, running = await asyncio.wait(running, timeout=CANCEL_AGAIN_S)
        await asyncio.gather(*ended, return_exceptions=True)
