"""Each wait has the whole limit, whatever the waits before it took of the timer."""

from __future__ import annotations

import asyncio

import pytest

from chatsrv.patience import Patience

LIMIT_S = 1.0
"""No machine is so busy that a short wait takes as long."""


async def test_waits_that_are_short_may_be_many() -> None:
    patience = Patience(LIMIT_S)
    began = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() < began + 1.5 * LIMIT_S:
        with patience:
            await asyncio.sleep(LIMIT_S / 10)


@pytest.mark.parametrize("before_s", [0.0, LIMIT_S / 10])
async def test_who_waits_for_too_long_is_told(before_s: float) -> None:
    patience = Patience(LIMIT_S)
    with patience:
        await asyncio.sleep(before_s)
    with pytest.raises(TimeoutError), patience:
        await asyncio.Event().wait()
    assert asyncio.get_running_loop().time() - patience.began >= LIMIT_S
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    with patience:  # and it goes on
        await asyncio.sleep(0)


async def test_who_is_cancelled_is_not_told_of_a_limit() -> None:
    async def wait() -> None:
        with Patience(LIMIT_S):
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
