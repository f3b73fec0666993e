"""A reader that lags gets everything, merged; a reader that waits gets it at once."""

from __future__ import annotations

import asyncio

import pytest

from engine.api import Output, Usage
from engine.errors import RequestFailed
from engine.mailbox import Mailbox

USAGE = Usage(1, 0, 0)


def output(index: int, token_id: int, text: str) -> Output:
    return Output(index=index, token_ids=(token_id,), text=text, finish_reason=None, usage=USAGE)


async def test_what_piles_up_is_merged_by_sequence() -> None:
    mailbox = Mailbox()
    for index, token_id, text in ((0, 1, "a"), (1, 2, "x"), (0, 3, "b")):
        mailbox.put(output(index, token_id, text))
    mailbox.close()
    first, second = await mailbox.get(), await mailbox.get()
    assert first is not None
    assert second is not None
    assert (first.index, first.token_ids, first.text) == (0, (1, 3), "ab")
    assert (second.index, second.token_ids, second.text) == (1, (2,), "x")
    assert await mailbox.get() is None
    assert await mailbox.get() is None, "the end stays the end"


async def test_notices_are_kept_apart_and_come_first() -> None:
    mailbox = Mailbox()
    mailbox.put(output(0, 1, "a"))
    mailbox.put(Output(index=0, token_ids=(), text="", finish_reason=None, usage=USAGE, notice="preempted"))
    first, second = await mailbox.get(), await mailbox.get()
    assert first is not None
    assert second is not None
    assert (first.notice, second.text) == ("preempted", "a")


async def test_a_waiting_reader_is_woken() -> None:
    mailbox = Mailbox()
    reader = asyncio.create_task(mailbox.get())
    await asyncio.sleep(0)
    mailbox.put(output(0, 1, "a"))
    got = await reader
    assert got is not None
    assert got.text == "a"


async def test_an_error_comes_after_what_was_said_before_it() -> None:
    mailbox = Mailbox()
    mailbox.put(output(0, 1, "a"))
    mailbox.close(RequestFailed("broken"))
    mailbox.close()
    assert await mailbox.get() is not None
    with pytest.raises(RequestFailed, match="broken"):
        await mailbox.get()
