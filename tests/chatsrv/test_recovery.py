"""Real servers that die or leave in the middle of answers: others go on, and nobody sees a seam."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from websockets.exceptions import ConnectionClosed

from chatsrv.errors import Unavailable
from chatsrv.ids import tag_of
from chatsrv.new_key import entry
from chatsrv.store import Store, keys
from chatsrv.wire.events import Told
from tests.chatsrv.conftest import ServerThread, wait_until
from tests.chatsrv.processes import ServerProcess, save_model
from tests.chatsrv.relay import LONG, Relay
from tests.chatsrv.sockets import ENDS, Socket, output_text, text_of
from tests.fakes import FakeEngine

pytestmark = pytest.mark.timeout(900)

NUM_STREAMS = 10
NUM_TOKENS = 400
KINDS: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 0.8, "seed": 7, "frequency_penalty": 0.3},
    {"temperature": 0.8, "top_logprobs": 1, "include": ["message.output_text.logprobs"]},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


class Stream:
    """One answer as its client sees it, over as many sockets as it takes."""

    def __init__(self, number: int) -> None:
        self.fields = {**KINDS[number % len(KINDS)], "max_output_tokens": NUM_TOKENS, "ignore_eos": True}
        self.text = f"Question {number}"
        self.events: list[dict[str, Any]] = []
        self.close_code: int | None = None

    def begin(self, server: ServerProcess, num_events: int) -> None:
        self._socket = Socket(server)
        self._socket.__enter__()
        self._socket.create(self.text, **self.fields)
        while len(self.events) < num_events:
            self.events.append(self._socket.recv())

    def until_closed(self) -> None:
        """Read what still comes of the answer, and remember how the socket ended."""
        try:
            while True:
                self.events.append(self._socket.recv())
        except ConnectionClosed as error:
            self.close_code = error.rcvd.code if error.rcvd else None
        self._socket.__exit__(None, None, None)

    def resume(self, server: ServerProcess) -> None:
        if self.is_ended:
            return
        with Socket(server) as socket:
            last = self.events[-1]["sequence_number"]
            socket.send("response.resume", response_id=self.id, starting_after=last)
            self.events += socket.answer()

    def check(self, server: ServerProcess) -> None:
        """Every event once and in order, one end, and what is stored is what was told."""
        assert [event["sequence_number"] for event in self.events] == list(range(len(self.events)))
        assert [event["type"] for event in self.events if event["type"] in ENDS] == ["response.incomplete"]
        final = self.events[-1]["response"]
        assert text_of(self.events) == output_text(final)
        assert final["usage"]["output_tokens"] == NUM_TOKENS
        assert final["incomplete_details"] == {"reason": "max_output_tokens"}
        logprobs = [one["logprob"] for event in self.events if "delta" in event for one in event["logprobs"]]
        stored = [one["logprob"] for one in final["output"][0]["content"][0]["logprobs"]]
        assert logprobs == pytest.approx(stored[: len(logprobs)], abs=1e-3)
        with Socket(server) as socket:
            socket.send("response.resume", response_id=self.id)
            assert _without_logprobs(socket.answer()) == _without_logprobs(self.events)

    @property
    def id(self) -> str:
        return str(self.events[0]["response"]["id"])

    @property
    def is_ended(self) -> bool:
        return self.events[-1]["type"] in ENDS


def _without_logprobs(events: list[dict[str, Any]]) -> list[Any]:
    """Computed again they may differ in the last digits."""
    text = json.dumps(events)
    return json.loads(re.sub(r'"logprob": [-+.e0-9]+', '"logprob": 0', text))  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def story(redis_server: str, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Ten answers, of which the server is killed; ten more, which their server leaves behind when it is asked to go."""
    data = tmp_path_factory.mktemp("data")
    settings = {"redis_url": redis_server.replace("/0", "/3"), "drain_timeout_s": 0.1}
    with ExitStack() as stack:
        first, second, third = (stack.enter_context(ServerProcess(model, data, **settings)) for _ in range(3))
        killed, left = ([Stream(number) for number in range(NUM_STREAMS)] for _ in range(2))
        first.ready()
        for number, stream in enumerate(killed):
            stream.begin(first, 3 + 2 * number)
        first.kill()
        for stream in killed:
            stream.until_closed()
        second.ready()
        third.ready()
        for stream in killed:
            stream.resume(second)
        for number, stream in enumerate(left):
            stream.begin(second, 3 + 2 * number)
        second.send(signal.SIGTERM)
        for stream in left:
            stream.until_closed()
        status = second.wait()
        for stream in left:
            stream.resume(third)
        yield {"killed": killed, "left": left, "status": status, "server": third}


def test_a_killed_servers_answers_go_on_in_another(story: dict[str, Any]) -> None:
    assert any(stream.close_code is None for stream in story["killed"])
    for stream in story["killed"]:
        stream.check(story["server"])


def test_a_server_that_leaves_hands_its_answers_over(story: dict[str, Any]) -> None:
    assert story["status"] == 0
    assert {stream.close_code for stream in story["left"]} == {1012}
    for stream in story["left"]:
        stream.check(story["server"])


def test_determined_answers_equal_the_undisturbed_ones(story: dict[str, Any]) -> None:
    for number, (killed, left) in enumerate(zip(story["killed"], story["left"], strict=True)):
        if number % len(KINDS) == 2:
            continue  # the server drew its seed
        whole = Stream(number)
        whole.begin(story["server"], 1)
        whole.resume(story["server"])
        assert text_of(killed.events) == text_of(left.events) == text_of(whole.events)


def test_nothing_is_left_running(story: dict[str, Any], redis_server: str) -> None:
    with redis.Redis.from_url(redis_server.replace("/0", "/3")) as client:
        assert client.hgetall("chatsrv:running") == {}


def test_history_goes_on_after_a_continued_answer(story: dict[str, Any]) -> None:
    server, previous = story["server"], story["killed"][0]
    body = {"input": "And?", "previous_response_id": previous.id, "max_output_tokens": 4}
    response = httpx.post(f"{server.url}/v1/responses", json=body, timeout=60).json()
    assert response["status"] in ("completed", "incomplete")
    assert response["usage"]["input_tokens"] > NUM_TOKENS


@pytest.fixture
def own_redis(redis_server: str) -> str:
    """A database of its own: other servers would take the orphans up."""
    return redis_server.replace("/0", "/5")


def test_an_orphan_goes_on_where_its_log_ends(serve: Callable[..., ServerThread], own_redis: str) -> None:
    with ExitStack() as stack:
        relay = Relay(serve, own_redis, stack)
        response_id = relay.begin(service_tier="flex", max_output_tokens=250)
        events = relay.give(response_id)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert (events[-1]["type"], text_of(events)) == ("response.incomplete", LONG[:250])
        taken_up = relay.other.submissions[0]
        assert 0 < len(taken_up.told) < 250
        original = relay.engine.submissions[0]
        assert (taken_up.prompt, taken_up.priority, taken_up.salt) == (
            original.prompt,
            original.priority,
            original.salt,
        )
        assert taken_up.params == original.params
        assert relay.second.client().responses.retrieve(response_id).output_text == LONG[:250]


def test_a_server_whose_lease_ends_before_its_time_gives_way(
    serve: Callable[..., ServerThread], own_redis: str
) -> None:
    """As when the clock of the store's machine is set forward: the server's own clock tells nothing."""
    with ExitStack() as stack:
        relay = Relay(serve, own_redis, stack)
        relay.other.paused = True
        response_id = relay.begin()
        relay.lose(response_id)
        relay.other.paused = False
        near = relay.socket(relay.second)
        near.send("response.resume", response_id=response_id)
        events = near.answer()
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert text_of(events) == LONG


def test_who_waits_for_an_answer_that_another_server_takes_over_waits_for_its_end(
    serve: Callable[..., ServerThread], own_redis: str, waiting: threading.Event
) -> None:
    with ExitStack() as stack:
        relay = Relay(serve, own_redis, stack)
        relay.other.paused = True
        response_id = relay.begin()
        far = relay.socket(relay.first)
        far.create("y", previous_response_id=response_id)
        wait_until(waiting.is_set)
        relay.lose(response_id)
        followed = keys.followed(tag_of(response_id), response_id)
        wait_until(lambda: relay.redis.exists(followed) or len(relay.engine.submissions) > 1)
        relay.engine.paused = relay.other.paused = False
        assert far.answer()[-1]["type"] == "response.completed"
        asked = {each.text for each in [*relay.engine.submissions, *relay.other.submissions]}
        assert asked == {"user\nxassistant\n", f"user\nxassistant\n{LONG}user\nyassistant\n"}


def test_an_orphan_counts_as_running_of_the_key_that_asked(
    serve: Callable[..., ServerThread], own_redis: str, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(entry("ada", "user", Relay.KEY) + "max_running = 1\n")
    with ExitStack() as stack:
        relay = Relay(serve, own_redis, stack, api_keys=str(keys))
        relay.other.paused = True
        response_id = relay.begin()
        relay.leave()
        relay.redis.hset("chatsrv:running", response_id, "dead")
        wait_until(lambda: relay.other.running == 1)
        near = relay.socket(relay.second)
        near.create("y")
        refusal = near.recv()
        assert (refusal["status"], refusal["error"]["code"]) == (429, "rate_limit_exceeded")
        relay.other.paused = False
        near.send("response.resume", response_id=response_id)
        assert text_of(near.answer()) == LONG
        assert near.ask("y")["status"] == "completed"


def test_two_servers_that_find_one_orphan_do_not_both_run_it(
    serve: Callable[..., ServerThread], own_redis: str
) -> None:
    with ExitStack() as stack:
        relay = Relay(serve, own_redis, stack)
        third = FakeEngine()
        third.enqueue(LONG)
        stack.enter_context(serve(third, redis_url=own_redis))
        assert text_of(relay.give(relay.begin())) == LONG
        assert len(relay.other.submissions) + len(third.submissions) == 1


@pytest.mark.parametrize(
    ("other", "takeovers", "reason"),
    [({"fingerprint": "beef"}, 0, "restarted with another model"), ({}, 3, "died 4 times")],
)
def test_what_cannot_go_on_ends_with_a_reason_and_keeps_what_was_told(
    serve: Callable[..., ServerThread], own_redis: str, other: dict[str, Any], takeovers: int, reason: str
) -> None:
    with ExitStack() as stack:
        relay = Relay(serve, own_redis, stack, **other)
        response_id = relay.begin()
        key = f"chatsrv:{{{response_id[5:17]}}}:responses"
        record = json.loads(relay.redis.hget(key, response_id))
        relay.redis.hset(key, response_id, json.dumps(record | {"num_takeovers": takeovers}))
        events = relay.give(response_id)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[-1]["type"] == "response.failed"
        assert reason in events[-1]["response"]["error"]["message"]
        told = text_of(events)
        assert LONG.startswith(told)
        socket = stack.enter_context(Socket(relay.second))
        socket.ask("on", previous_response_id=response_id)
    assert relay.other.submissions[-1].text == f"user\nxassistant\n{told}user\nonassistant\n"


def test_an_orphan_that_nobody_listed_is_found_by_who_reads_it(
    serve: Callable[..., ServerThread], own_redis: str
) -> None:
    with ExitStack() as stack:
        relay = Relay(serve, own_redis, stack)
        response_id = relay.begin()
        relay.leave()
        key = f"chatsrv:{{{response_id[5:17]}}}:responses"
        record = json.loads(relay.redis.hget(key, response_id))
        relay.redis.hset(key, response_id, json.dumps(record | {"process_id": "dead"}))
        relay.redis.hdel("chatsrv:running", response_id)
        socket = stack.enter_context(Socket(relay.second))
        socket.send("response.resume", response_id=response_id)
        assert text_of(socket.answer()) == LONG


def test_an_orphan_that_could_not_be_read_for_a_moment_is_found_again(
    serve: Callable[..., ServerThread], own_redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, failures = Store.told, [Unavailable("the store is away")]

    async def away_at_first(store: Store, response_id: str) -> Told:
        if failures:
            raise failures.pop()
        return await told(store, response_id)

    monkeypatch.setattr(Store, "told", away_at_first)
    with ExitStack() as stack:
        relay = Relay(serve, own_redis, stack)
        assert text_of(relay.give(relay.begin())) == LONG
    assert failures == []


def test_a_claim_whose_answer_was_lost_is_made_again(serve: Callable[..., ServerThread], own_redis: str) -> None:
    with ExitStack() as stack:
        relay = Relay(serve, own_redis, stack)
        response_id = relay.begin()
        relay.leave()
        first = relay.redis.hget("chatsrv:running", response_id)
        processes = {key.rpartition(b":")[2] for key in relay.redis.keys("chatsrv:process:*")}
        (second,) = processes - {first}
        relay.redis.hset("chatsrv:running", response_id, second)
        socket = stack.enter_context(Socket(relay.second))
        socket.send("response.resume", response_id=response_id)
        assert text_of(socket.answer()) == LONG


def test_a_damaged_orphan_keeps_nobody_from_the_others(serve: Callable[..., ServerThread], own_redis: str) -> None:
    with ExitStack() as stack:
        relay = Relay(serve, own_redis, stack)
        damaged, response_id = "resp_" + "x" * 32, relay.begin()
        session = relay.redis.hgetall(f"chatsrv:{{{response_id[5:17]}}}:session")
        relay.redis.hset(f"chatsrv:{{{damaged[5:17]}}}:session", mapping=session)
        relay.redis.hset(f"chatsrv:{{{damaged[5:17]}}}:responses", damaged, "nonsense")
        relay.redis.hset("chatsrv:running", damaged, "dead")
        assert text_of(relay.give(response_id)) == LONG
        wait_until(lambda: relay.redis.hgetall("chatsrv:running") == {})
        assert httpx.get(f"{relay.second.url}/healthz").status_code == 200
