"""The machine's clock is set forward or back by hours: who runs what, what is kept and what is allowed stay."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx
import pytest

from chatsrv.account import Account
from chatsrv.errors import Busy
from chatsrv.limits import Limits
from tests.chatsrv.conftest import RunningServer, ServerThread
from tests.chatsrv.sockets import Socket, output_text, text_of
from tests.fakes import FakeEngine

HOUR_S = 3600
LONG = "0123456789" * 30

pytestmark = pytest.mark.parametrize("jump_s", [5 * HOUR_S, -5 * HOUR_S])


class WallClock:
    """The time of day as the whole process reads it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead_s = 0
        true_time, true_time_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: true_time() + self.ahead_s)
        monkeypatch.setattr(time, "time_ns", lambda: true_time_ns() + self.ahead_s * 10**9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    return WallClock(monkeypatch)


@pytest.fixture
def own_redis(redis_server: str) -> str:
    """A database of its own: other servers would take the orphans up."""
    return redis_server.replace("/0", "/6")


def _conversations(server: RunningServer) -> list[str]:
    return [one["id"] for one in httpx.get(f"{server.url}/v1/conversations").json()["data"]]


def _texts(server: RunningServer, conversation: str) -> list[str]:
    page = httpx.get(f"{server.url}/v1/conversations/{conversation}/items", params={"order": "asc"}).json()
    return [item["content"][0]["text"] for item in page["data"]]


def test_a_running_answer_stays_where_it_is_and_can_be_resumed(
    serve: Callable[..., ServerThread], own_redis: str, clock: WallClock, jump_s: int
) -> None:
    engine, other = FakeEngine(delay_s=0.012), FakeEngine()
    engine.enqueue(LONG)
    with serve(engine, redis_url=own_redis) as first, serve(other, redis_url=own_redis) as second:
        with Socket(first) as socket:
            socket.create("x")
            events = [socket.recv() for _ in range(20)]
            clock.ahead_s = jump_s
            events += socket.answer()  # for more than three looks for answers of dead servers
        assert (events[-1]["type"], text_of(events)) == ("response.completed", LONG)
        assert other.submissions == []
        with Socket(second) as socket:
            socket.send("response.resume", response_id=events[0]["response"]["id"])
            assert socket.answer() == events
            assert output_text(socket.ask("on", previous_response_id=events[0]["response"]["id"])) == "You said: on"


def test_conversations_are_kept_and_their_items_stay_in_order(
    serve: Callable[..., ServerThread], own_redis: str, clock: WallClock, jump_s: int
) -> None:
    """With lives shorter than the jump, and servers that know nothing of the time before."""
    settings = {"redis_url": own_redis, "session_ttl_s": HOUR_S, "events_ttl_s": HOUR_S}
    with serve(**settings) as server, Socket(server) as socket:
        before = server.client().conversations.create().id
        response = socket.ask("one", conversation=before)
    clock.ahead_s = jump_s
    with serve(**settings) as server, Socket(server) as socket:
        after = server.client().conversations.create().id
        socket.ask("x", conversation=after)
        assert set(_conversations(server)) >= {before, after}
        socket.ask("two", conversation=before)
        body = {"items": [{"type": "message", "role": "user", "content": "three"}]}
        assert httpx.post(f"{server.url}/v1/conversations/{before}/items", json=body).status_code == 200
        assert _texts(server, before) == ["one", "You said: one", "two", "You said: two", "three"]
        socket.send("response.resume", response_id=response["id"])
        assert socket.answer()[-1]["response"] == response
    clock.ahead_s = 0
    with serve(**settings) as server:
        assert set(_conversations(server)) >= {before, after}


def test_tokens_per_minute_are_of_minutes_that_have_passed(clock: WallClock, jump_s: int) -> None:
    account = Account(Limits(tokens_per_minute=60))
    account.charge(90)
    clock.ahead_s = jump_s
    with pytest.raises(Busy) as caught, account.place():
        pass
    assert 29 <= int(caught.value.headers["Retry-After"]) <= 31
