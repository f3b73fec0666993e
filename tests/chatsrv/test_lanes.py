"""Lanes of a socket: one after the other within a lane, side by side between lanes, all within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from chatsrv import lanes
from chatsrv.account import Account
from chatsrv.errors import Busy, InvalidField
from chatsrv.lanes import Lanes
from chatsrv.limits import Limits
from chatsrv.wire.create import ResponseCreate

MAX_QUEUED = 100


class Answers:
    """Records what is being answered; each answer ends when it is let go."""

    def __init__(self) -> None:
        self.running: list[ResponseCreate] = []
        self.started: list[str | None] = []
        self._release = asyncio.Semaphore(0)

    async def __call__(self, request: ResponseCreate) -> None:
        self.running.append(request)
        self.started.append(request.instructions)
        await self._release.acquire()
        self.running.remove(request)

    def let_go(self, count: int = 1) -> None:
        for _ in range(count):
            self._release.release()


def _create(stream_id: str | None, name: str = "") -> ResponseCreate:
    return ResponseCreate(stream_id=stream_id, instructions=name)


async def _settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.fixture
async def socket() -> AsyncIterator[tuple[Lanes, Answers]]:
    answers = Answers()
    account = Account(Limits(max_queued=MAX_QUEUED))
    opened = Lanes(answers, account)
    yield opened, answers
    await opened.close()
    for _ in range(MAX_QUEUED):
        account.take("queued")  # all places in the queue are free again
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("lane")]


@pytest.mark.parametrize("stream_id", ["a", None])
async def test_one_lane_answers_in_order_and_one_at_a_time(
    socket: tuple[Lanes, Answers], stream_id: str | None
) -> None:
    opened, answers = socket
    for name in "123":
        opened.put(_create(stream_id, name))
    for count in (1, 2, 3):
        await _settle()
        assert answers.started == list("123")[:count]
        assert len(answers.running) == 1
        answers.let_go()


async def test_lanes_answer_side_by_side(socket: tuple[Lanes, Answers]) -> None:
    opened, answers = socket
    for stream_id in ("a", "b", None):
        opened.put(_create(stream_id))
    await _settle()
    assert len(answers.running) == 3


async def test_a_socket_runs_only_so_many_at_once(socket: tuple[Lanes, Answers]) -> None:
    opened, answers = socket
    for number in range(lanes.MAX_ACTIVE + 3):
        opened.put(_create(f"lane{number}"))
    await _settle()
    assert len(answers.running) == lanes.MAX_ACTIVE
    answers.let_go(3)
    await _settle()
    assert len(answers.started) == lanes.MAX_ACTIVE + 3


async def test_one_named_lane_too_many_is_refused_and_the_others_go_on(socket: tuple[Lanes, Answers]) -> None:
    opened, _ = socket
    for number in range(lanes.MAX_NAMED_LANES):
        opened.put(_create(f"lane{number}"))
    with pytest.raises(InvalidField, match="32 named lanes") as caught:
        opened.put(_create("one more"))
    assert (caught.value.param, caught.value.code) == ("stream_id", "websocket_stream_limit_reached")
    opened.put(_create("lane0"))
    opened.put(_create(None))


async def test_a_full_lane_is_busy(socket: tuple[Lanes, Answers]) -> None:
    opened, _ = socket
    for _ in range(lanes.MAX_QUEUED_PER_LANE):
        opened.put(_create("a"))
    with pytest.raises(Busy, match="64 creates are waiting"):
        opened.put(_create("a"))
    opened.put(_create("b"))


async def test_a_key_has_only_so_many_waiting_in_all_its_lanes(socket: tuple[Lanes, Answers]) -> None:
    opened, answers = socket
    for name in ("a", "b"):
        opened.put(_create(name))
    await _settle()  # these two are being answered and do not wait
    for number in range(MAX_QUEUED):
        opened.put(_create("ab"[number % 2]))
    with pytest.raises(Busy, match="100 responses queued"):
        opened.put(_create("c"))
    answers.let_go()
    await _settle()
    opened.put(_create("c"))
