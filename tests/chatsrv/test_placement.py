"""Two servers on one store: a conversation goes to the engine that holds its beginning, and never depends on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from chatsrv import placement
from chatsrv.errors import Unavailable
from chatsrv.store import connect
from chatsrv.store.connect import disconnect
from chatsrv.store.inboxes import Inboxes
from chatsrv.store.reachable import Reachable
from tests.chatsrv.conftest import ServerThread, wait_until
from tests.chatsrv.sockets import Socket, output_text
from tests.fakes import FakeEngine

LONG = "0123456789" * 40


class Pair:
    """Server ``near`` is asked; ``far`` has answered the turn before."""

    def __init__(self, serve: Callable[..., ServerThread], url: str, stack: ExitStack) -> None:
        self.far, self.near = FakeEngine(), FakeEngine(delay_s=0.001)
        self.far.enqueue(LONG)
        self.far_thread = serve(self.far, redis_url=url)
        far = stack.enter_context(self.far_thread)
        self.redis = stack.enter_context(redis.Redis.from_url(url))
        first = stack.enter_context(Socket(far)).ask("x")
        self.first_id, self.item_id = first["id"], first["output"][0]["id"]
        self.near_server = stack.enter_context(serve(self.near, redis_url=url))
        self.socket = stack.enter_context(Socket(self.near_server))

    def items(self) -> dict[str, Any]:
        stored: dict[bytes, bytes] = self.redis.hgetall(f"chatsrv:{{{self.first_id[5:17]}}}:items")
        return {item_id.decode(): json.loads(value) for item_id, value in stored.items()}

    def place(self) -> dict[str, Any]:
        """The look-up after the first turn."""
        key = self.items()[self.item_id]["prefix_key"]
        [place] = self.redis.hvals(f"chatsrv:prefix:{key}")
        found: dict[str, Any] = json.loads(place)
        return found

    def ask(self) -> dict[str, Any]:
        return self.socket.ask("y", previous_response_id=self.first_id)


@pytest.fixture
def pair(serve: Callable[..., ServerThread], redis_server: str) -> Iterator[Pair]:
    url = redis_server.replace("/0", "/4")
    with redis.Redis.from_url(url) as client:
        client.flushdb()
    with ExitStack() as stack:
        yield Pair(serve, url, stack)


def test_after_each_turn_a_look_up_tells_which_engine_holds_it_in_which_tier(pair: Pair) -> None:
    place = pair.place()
    assert (place["tier"], place["num_tokens"]) == ("device", 16 * (place["num_tokens"] // 16))
    assert place["num_tokens"] > len(LONG)
    beat = json.loads(pair.redis.get(f"chatsrv:process:{place['process_id']}"))
    assert (beat["fingerprint"], beat["num_free_blocks"]) == ("f00d", 60)


def test_the_next_turn_is_computed_where_its_beginning_lies(pair: Pair) -> None:
    response = pair.ask()
    assert output_text(response) == "You said: y"
    assert len(pair.far.submissions) == 2
    assert pair.near.submissions == []
    assert response["usage"]["input_tokens_details"]["cached_tokens"] > len(LONG)
    assert pair.redis.hlen("chatsrv:running") == 0


def test_a_busy_holder_is_left_alone(pair: Pair) -> None:
    holder = pair.place()["process_id"]
    pair.far.num_waiting = 3
    wait_until(lambda: json.loads(pair.redis.get(f"chatsrv:process:{holder}"))["num_waiting"] == 9)
    assert output_text(pair.ask()) == "You said: y"
    assert len(pair.near.submissions) == 1


def test_a_holder_that_leaves_in_mid_answer_is_succeeded_here(pair: Pair) -> None:
    """Whole answer, each token once."""
    for engine in (pair.far, pair.near):
        engine.enqueue(LONG)
    pair.far.delay_s = 0.005
    pair.socket.create("y", previous_response_id=pair.first_id)
    events = [pair.socket.recv() for _ in range(30)]
    pair.far_thread.stop()
    events += pair.socket.answer()
    assert output_text(events[-1]["response"]) == LONG
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert len(pair.near.submissions[0].told) > 0


def test_a_holder_that_refuses_is_succeeded_here(pair: Pair) -> None:
    pair.far.max_num_waiting = 0
    assert output_text(pair.ask()) == "You said: y"
    assert len(pair.near.submissions) == 1


def test_stopping_reaches_the_engine_that_computes(pair: Pair) -> None:
    pair.far.paused = True
    pair.socket.create("y", previous_response_id=pair.first_id)
    response_id = pair.socket.until("response.created")[0]["response"]["id"]
    wait_until(lambda: pair.far.running == 1)
    pair.socket.send("response.cancel", response_id=response_id)
    assert pair.socket.answer()[-1]["type"] == "response.cancelled"
    wait_until(lambda: pair.far.running == 0)


def test_what_can_never_run_is_refused_before_it_is_sent(pair: Pair) -> None:
    pair.socket.create("y", previous_response_id=pair.first_id, max_output_tokens=pair.near.max_model_len)
    refusal = pair.socket.recv()
    assert (refusal["status"], refusal["error"]["code"]) == (400, "context_length_exceeded")
    assert (len(pair.far.submissions), pair.near.submissions) == (1, [])


def test_a_message_that_makes_no_sense_is_passed_over(pair: Pair) -> None:
    inbox = f"chatsrv:inbox:{pair.place()['process_id']}"
    for fields in ({"message": "not JSON"}, {"message": '{"type": "Work", "id": "x"}'}, {"something": "else"}):
        pair.redis.xadd(inbox, fields)
    assert output_text(pair.ask()) == "You said: y"
    assert len(pair.far.submissions) == 2


def test_work_that_its_host_never_sees_is_done_here(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where a store fails over and forgets it."""
    monkeypatch.setattr(placement, "LOST_AFTER_S", 0.5)
    inbox = f"chatsrv:inbox:{pair.place()['process_id']}"
    pair.redis.xadd(inbox, {"message": "?"}, id="99999999999999-0")
    wait_until(lambda: "passed over" in caplog.text)
    pair.redis.delete(inbox)  # what comes now has smaller ids
    assert output_text(pair.ask()) == "You said: y"
    assert (len(pair.far.submissions), len(pair.near.submissions)) == (1, 1)


async def test_results_of_which_some_are_lost_are_not_taken_for_whole(redis_server: str) -> None:
    client = connect(redis_server)
    inboxes = Inboxes(client, Reachable(), "me")
    for number in (1, 2, 3):
        await inboxes.put_result("work", number, b"%d" % number)
    assert await inboxes.results("work", 0) == [b"1", b"2", b"3"]
    await client.xdel("chatsrv:results:work", "2-0")
    for num_read in (0, 1):
        with pytest.raises(Unavailable):
            await inboxes.results("work", num_read)
    assert await inboxes.results("work", 2) == [b"3"]
    await disconnect(client)
