"""A response's log: numbers without gaps, one last event, and readers that replay and then follow."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from chatsrv.event_log import EventLog
from chatsrv.wire.events import Entry, Event, Preempted, Resumed


class Last(Event, kw_only=True, tag="response.completed"):
    """A terminal event without a response in it."""


def _filled(count: int) -> EventLog:
    log = EventLog()
    for _ in range(count):
        log.append(Preempted(response_id="resp_1"))
    return log


async def _collect(log: EventLog, starting_after: int = -1) -> list[int]:
    return [entry.sequence_number async for batch in log.follow(starting_after) for entry in batch]


def test_numbers_count_from_zero_and_stand_in_the_event_too() -> None:
    log = EventLog()
    entries = [log.append(Preempted(response_id="r")), log.append(Resumed(response_id="r")), log.append(Last())]
    assert [entry.sequence_number for entry in entries] == [0, 1, 2]
    assert [msgspec.json.decode(entry.data)["sequence_number"] for entry in entries] == [0, 1, 2]
    assert [entry.type for entry in entries] == ["chatsrv.preempted", "chatsrv.resumed", "response.completed"]
    assert log.is_closed


def test_nothing_follows_the_terminal_event() -> None:
    log = EventLog()
    log.append(Last())
    with pytest.raises(AssertionError, match="exactly one terminal event"):
        log.append(Last())


def test_a_prepared_event_is_not_yet_told() -> None:
    log = EventLog()
    prepared = log.prepare(Last())
    assert not log.is_closed
    log.publish(prepared)
    assert log.is_closed


@pytest.mark.parametrize(("starting_after", "expected"), [(-1, [0, 1, 2, 3]), (1, [2, 3]), (2, [3]), (3, [])])
async def test_replay_starts_after_any_number(starting_after: int, expected: list[int]) -> None:
    log = _filled(3)
    log.append(Last())
    assert await _collect(log, starting_after) == expected


async def test_replay_and_live_together_are_the_whole() -> None:
    log = _filled(2)
    readers = [asyncio.create_task(_collect(log, after)) for after in (-1, 0, 1)]
    for _ in range(3):
        await asyncio.sleep(0)
        log.append(Preempted(response_id="r"))
    log.append(Last())
    assert await asyncio.gather(*readers) == [[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [2, 3, 4, 5]]


async def test_a_reader_that_lags_gets_what_there_is_at_once() -> None:
    log = EventLog()
    reader = log.follow()
    log.append(Preempted(response_id="r"))
    first: list[Entry] = await anext(reader)
    for _ in range(5):
        log.append(Preempted(response_id="r"))
    second = await anext(reader)
    assert (len(first), len(second)) == (1, 5)
    await reader.aclose()
