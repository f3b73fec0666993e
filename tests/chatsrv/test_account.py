"""A key at its limit is refused, with the time to wait, on either transport; nothing is queued, nobody else notices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus

from chatsrv.account import Account, Accounts
from chatsrv.errors import Busy, TooLarge
from chatsrv.keyring import Caller
from chatsrv.limits import Limits
from chatsrv.new_key import entry
from tests.chatsrv.conftest import RunningServer, ServerThread, make_settings, wait_until
from tests.chatsrv.sockets import Socket
from tests.fakes import FakeEngine

ADA, BOB = "ada-key", "bob-key"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_what_is_given_back_can_be_taken_again() -> None:
    account = Account(Limits(max_connections=2))
    account.take("connections")
    account.take("connections")
    account.take("running")
    with pytest.raises(Busy, match="2 connections open"):
        account.take("connections")
    account.give_back("connections")
    account.take("connections")


def test_a_place_is_free_again_when_what_it_was_for_failed() -> None:
    account = Account(Limits(max_running=1))
    with pytest.raises(KeyError), account.place():
        raise KeyError
    with account.place(), pytest.raises(Busy, match="1 responses running"), account.place():
        pass


def test_an_answer_that_goes_on_here_counts_and_is_not_refused() -> None:
    accounts = Accounts(max_message_bytes=20)
    account = accounts.of(Caller("somebody", key_id="key", limits=Limits(max_running=1)))
    assert accounts.of_key("key") is account
    places = [account.continued() for _ in range(2)]
    with pytest.raises(Busy, match="1 responses running"), account.place():
        pass
    for place in places:
        place.leave()
    with account.place():
        pass


@given(st.lists(st.tuples(st.floats(0, 90), st.integers(1, 80)), max_size=60))
def test_tokens_are_as_many_as_time_allows_and_waiting_as_told_is_enough(asked: list[tuple[float, int]]) -> None:
    """Each may go up to one response beyond; over a long time the mean holds."""
    clock = Clock()
    account = Account(Limits(tokens_per_minute=60), clock)
    began, used = clock.now, 0
    for pause_s, num_tokens in asked:
        clock.now += pause_s
        try:
            with account.place():
                pass
        except Busy as error:
            clock.now += int(error.headers["Retry-After"])
            with account.place():
                pass
        assert used < 60 + (clock.now - began) + 1e-6
        account.charge(num_tokens)
        used += num_tokens


def test_sizes_are_of_the_bytes_sent() -> None:
    accounts = Accounts(max_message_bytes=20)
    for limits, limit in ((Limits(max_message_bytes=10), 10), (Limits(), 20), (Limits(max_message_bytes=30), 20)):
        account = accounts.of(Caller("somebody", limits=limits))
        account.check_size(limit)
        with pytest.raises(TooLarge, match=f"{limit} bytes"):
            account.check_size(limit + 1)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Ada's key has limits of its own, which a test sets; Bob's has none to speak of."""
    folder = tmp_path_factory.mktemp("data")
    keys = folder / "keys.toml"
    keys.write_text(entry("ada", "user", ADA) + entry("bob", "user", BOB))
    with ServerThread(make_settings(folder, api_keys=str(keys)), FakeEngine()) as server:
        yield server


@pytest.fixture
def limited(running: RunningServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., RunningServer]]:
    monkeypatch.setattr("chatsrv.keyring.LOOK_INTERVAL_S", 0.0)

    def limit(**limits: int) -> RunningServer:
        lines = "".join(f"{name} = {value}\n" for name, value in limits.items())
        Path(running.settings.api_keys).write_text(entry("ada", "user", ADA) + lines + entry("bob", "user", BOB))
        return running

    vars(running.engine).update(vars(FakeEngine()))
    yield limit
    running.engine.paused = False
    wait_until(lambda: running.engine.running == 0)


def _headers(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _post(server: RunningServer, key: str, path: str, **body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", headers=_headers(key), json=body, timeout=20)


def _socket(server: RunningServer, key: str) -> Socket:
    return Socket(server, additional_headers=_headers(key))


def _assert_refused(answer: httpx.Response, says: str) -> None:
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert says in error["message"]


def test_running_responses(limited: Callable[..., RunningServer]) -> None:
    server = limited(max_running=1)
    server.engine.paused = True
    with _socket(server, ADA) as ada:
        ada.create("x", stream_id="a")
        ada.until("response.in_progress")
        ada.create("y", stream_id="b")
        event = ada.recv()
        assert (event["type"], event["status"], event["stream_id"]) == ("error", 429, "b")
        assert event["error"]["code"] == "rate_limit_exceeded"
        assert event["error"]["headers"] == {"retry-after": "1"}
        _assert_refused(_post(server, ADA, "/v1/responses", input="z"), "1 responses running")
        message = [{"role": "user", "content": "z"}]
        _assert_refused(_post(server, ADA, "/v1/chat/completions", messages=message), "1 responses running")
        assert len(server.engine.submissions) == 1  # nothing of what was refused was queued
        server.engine.paused = False
        assert _post(server, BOB, "/v1/responses", input="z").status_code == 200
        assert ada.answer()[-1]["type"] == "response.completed"
        assert ada.ask("again")["status"] == "completed"


def test_prompts_of_one_request_count_each_and_are_queued_together_or_not(
    limited: Callable[..., RunningServer],
) -> None:
    server = limited(max_running=2)
    _assert_refused(_post(server, ADA, "/v1/completions", prompt=["a", "b", "c"]), "2 responses running")
    wait_until(lambda: server.engine.running == 0)
    for _ in range(3):
        assert _post(server, ADA, "/v1/completions", prompt=["a", "b"]).status_code == 200


def test_queued_responses(limited: Callable[..., RunningServer]) -> None:
    server = limited(max_queued=1)
    server.engine.paused = True
    with _socket(server, ADA) as ada:
        ada.create("x")
        ada.until("response.in_progress")
        ada.create("y")
        ada.create("z")
        event = ada.until("error")[-1]
        assert event["status"] == 429
        assert "1 responses queued" in event["error"]["message"]
        server.engine.paused = False
        assert [ada.answer()[-1]["type"] for _ in range(2)] == ["response.completed"] * 2
    assert [submission.text.count("z") for submission in server.engine.submissions] == [0, 0]


def test_connections(limited: Callable[..., RunningServer]) -> None:
    server = limited(max_connections=1)
    with _socket(server, ADA) as ada:
        _assert_refused(_post(server, ADA, "/tokenize", prompt="x"), "1 connections open")
        with pytest.raises(InvalidStatus) as caught, _socket(server, ADA):
            pass
        assert caught.value.response.status_code == 429
        assert caught.value.response.headers["retry-after"] == "1"
        with _socket(server, BOB) as bob:
            assert bob.ask("x")["status"] == ada.ask("x")["status"] == "completed"
    wait_until(lambda: _post(server, ADA, "/tokenize", prompt="x").status_code == 200)


def test_tokens_per_minute(limited: Callable[..., RunningServer]) -> None:
    server = limited(tokens_per_minute=30)
    assert _post(server, ADA, "/v1/responses", input="x" * 20).status_code == 200
    answer = _post(server, ADA, "/v1/responses", input="y")
    _assert_refused(answer, "30 tokens per minute")
    assert int(answer.headers["retry-after"]) > 10
    with _socket(server, ADA) as ada:
        ada.create("y")
        event = ada.recv()
        assert (event["status"], event["error"]["code"]) == (429, "rate_limit_exceeded")
        assert int(event["error"]["headers"]["retry-after"]) > 10
    assert len(server.engine.submissions) == 1
    assert _post(server, BOB, "/v1/responses", input="y").status_code == 200


def test_message_bytes(limited: Callable[..., RunningServer]) -> None:
    server = limited(max_message_bytes=200)
    answer = _post(server, ADA, "/v1/responses", input="x" * 200)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    with _socket(server, ADA) as ada:
        ada.create("é" * 100)
        event = ada.recv()
        assert (event["status"], event["error"]["code"]) == (413, "request_too_large")
        assert ada.ask("x" * 100)["status"] == "completed"
    assert _post(server, BOB, "/v1/responses", input="x" * 200).status_code == 200


def test_a_key_at_its_limit_disturbs_nobody(limited: Callable[..., RunningServer]) -> None:
    """Many threads of Ada's press against her limit, while each of Bob's requests is answered."""
    server = limited(max_running=2)
    server.engine.delay_s = 0.001
    statuses: list[int] = []

    def press() -> None:
        statuses.extend(_post(server, ADA, "/v1/responses", input="x").status_code for _ in range(8))

    threads = [threading.Thread(target=press) for _ in range(6)]
    for thread in threads:
        thread.start()
    assert {_post(server, BOB, "/v1/responses", input="x").status_code for _ in range(8)} == {200}
    for thread in threads:
        thread.join()
    assert set(statuses) == {200, 429}
