"""Writes are gathered: how many transactions there are follows from the time, not from how much there is to write."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest
from redis.exceptions import ConnectionError

from chatsrv.ids import new_id, new_tag
from chatsrv.store.journal import FLUSH_INTERVAL_S, Journal
from chatsrv.store.leases import Leases
from chatsrv.wire.events import Entry


class SlowStore:
    """A client whose transactions take a while, as its pipeline."""

    def __init__(self) -> None:
        self.num_transactions = 0
        self.commands: list[tuple[Any, ...]] = []

    def pipeline(self, transaction: bool) -> SlowStore:
        self.commands = []
        return self

    def execute_command(self, *command: Any) -> None:
        self.commands.append(command)

    async def execute(self, raise_on_error: bool) -> list[None]:
        await asyncio.sleep(0.02)
        self.num_transactions += 1
        return [None] * len(self.commands)


class AwayStore(SlowStore):
    async def execute(self, raise_on_error: bool) -> list[None]:
        raise ConnectionError("it is away")


class SureLeases:
    async def check(self) -> None:
        """They hold."""


async def test_what_comes_while_a_batch_is_written_waits_for_the_next_one() -> None:
    store = SlowStore()
    journal = Journal(store, 60, cast(Leases, SureLeases()), lambda response_ids: None)
    journal.start()
    loop = asyncio.get_running_loop()
    response_id, began = new_id("resp", new_tag()), loop.time()
    for number in range(100):
        journal.append(response_id, Entry(number, "response.output_text.delta", b"{}"))
        await asyncio.sleep(0.005)
    num_intervals = (loop.time() - began) / FLUSH_INTERVAL_S
    await journal.close()
    assert 1 <= store.num_transactions <= 2 + num_intervals


async def test_of_several_lifetimes_of_a_key_the_last_is_written() -> None:
    store = SlowStore()
    journal = Journal(store, 60, cast(Leases, SureLeases()), lambda response_ids: None)
    journal.write("slot", [("SET", "a", "1"), ("EXPIRE", "a", 5), ("EXPIRE", "b", 5)], is_urgent=False)
    journal.write("slot", [("SET", "a", "2"), ("EXPIRE", "a", 7)], is_urgent=False)
    journal.start()
    await journal.close()
    assert store.commands == [("SET", "a", "1"), ("EXPIRE", "b", 5), ("SET", "a", "2"), ("EXPIRE", "a", 7)]


async def test_all_that_waits_for_a_store_that_is_away_has_one_time_limit(caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(AwayStore(), 60, cast(Leases, SureLeases()), lambda response_ids: None)
    journal.start()
    for number in range(50):
        journal.write(f"slot {number}", [("SET", "key", "value")])
    with caplog.at_level(logging.ERROR, "chatsrv.store"):
        async with asyncio.timeout(10):  # one limit after the other would be 25 s
            await journal.close(timeout_s=0.5)
    assert "50 writes are lost" in caplog.text
