"""When the store goes away, is full or loses keys: answers go on, nothing is lost or doubled, and somebody is told."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import redis

from chatsrv.ids import tag_of
from chatsrv.store import journal, keys
from tests.chatsrv.conftest import ServerThread, free_port, store_answers, wait_until
from tests.chatsrv.sockets import Socket, output_text, text_of
from tests.fakes import FakeEngine
from tests.machine import need_program

LONG = "0123456789" * 30


class Outage:
    """A Redis that can be killed and brought back with its data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://127.0.0.1:{self._port}"
        self.client = redis.Redis(port=self._port)

    def start(self) -> None:
        options = ["--port", str(self._port), "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        command = [need_program("redis-server"), *options, "--dir", str(self._folder)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until(lambda: store_answers(self.client))

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()


@pytest.fixture
def outage(tmp_path: Path) -> Iterator[Outage]:
    folder = tmp_path / "redis"
    folder.mkdir()
    outage = Outage(folder)
    outage.start()
    yield outage
    outage.client.close()
    outage.kill()


def ready(url: str) -> str:
    return str(httpx.get(f"{url}/readyz", timeout=20).json()["status"])


def test_a_restart_in_mid_stream_loses_no_event(serve: Callable[..., ServerThread], outage: Outage) -> None:
    engine = FakeEngine(delay_s=0.005)
    engine.enqueue(LONG)
    with serve(engine, redis_url=outage.url) as server, Socket(server) as socket:
        socket.create("x")
        events = [socket.recv() for _ in range(20)]
        outage.kill()
        events += [socket.recv() for _ in range(100)]  # the stream does not notice
        outage.start()
        events += socket.answer()
        response_id = events[0]["response"]["id"]
        assert text_of(events) == LONG
        wait_until(lambda: ready(server.url) == "ok")
        socket.send("response.resume", response_id=response_id)
        assert socket.answer() == events
        assert output_text(socket.ask("on", previous_response_id=response_id)) == "You said: on"
    assert LONG in engine.submissions[1].text


def test_an_answer_that_could_not_be_saved_says_so_and_is_saved_later(
    serve: Callable[..., ServerThread], outage: Outage
) -> None:
    engine = FakeEngine()
    with serve(engine, redis_url=outage.url) as server, Socket(server) as socket:
        outage.kill()
        response = socket.ask("x")
        assert (response["status"], response["chatsrv"]) == ("completed", {"saved": False})
        assert ready(server.url) == "degraded"
        assert httpx.get(f"{server.url}/healthz").status_code == 200
        socket.create("y", previous_response_id=response["id"])
        refusal = socket.recv()
        assert (refusal["status"], refusal["error"]["code"]) == (503, "store_unavailable")
        outage.start()
        wait_until(lambda: ready(server.url) == "ok")
        assert output_text(socket.ask("y", previous_response_id=response["id"])) == "You said: y"


def test_an_embedded_store_that_was_killed_comes_back_with_its_data(
    serve: Callable[..., ServerThread], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serve(FakeEngine()) as server, Socket(server) as socket:
        first = socket.ask("x")
        os.kill(embedded_process(tmp_path), signal.SIGKILL)
        wait_until(lambda: ready(server.url) == "degraded")
        wait_until(lambda: ready(server.url) == "ok")
        response = socket.ask("y", previous_response_id=first["id"])
        assert (output_text(response), "chatsrv" in response) == ("You said: y", False)  # it was saved
        assert httpx.get(f"{server.url}/v1/responses/{response['id']}").status_code == 200
    assert len([record for record in caplog.records if "has died with status -9" in record.getMessage()]) == 1
    with serve(FakeEngine()) as server:  # and what was said is on the disk
        assert httpx.get(f"{server.url}/v1/responses/{response['id']}").status_code == 200


def embedded_process(data_dir: Path) -> int:
    with redis.Redis(unix_socket_path=str(data_dir / "store" / "store.sock")) as client:
        number: int = client.info("server")["process_id"]
        return number


def test_what_waits_for_a_store_that_stays_away_has_a_limit(
    serve: Callable[..., ServerThread], outage: Outage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "MAX_BUFFERED_BYTES", 20_000)
    with serve(redis_url=outage.url) as server, Socket(server) as socket:
        outage.kill()
        statuses = [httpx.post(f"{server.url}/v1/responses", json={"input": "x"}).status_code for _ in range(20)]
        num_taken = statuses.count(200)
        assert statuses == [200] * num_taken + [503] * (20 - num_taken)
        assert 0 < num_taken < 20
        assert socket.ask("unstored", store=False)["status"] == "completed"
        outage.start()
        wait_until(lambda: ready(server.url) == "ok")
        assert socket.ask("again")["status"] == "completed"


def test_an_outage_is_logged_once_and_not_each_second(
    serve: Callable[..., ServerThread], outage: Outage, caplog: pytest.LogCaptureFixture
) -> None:
    """Each second orphans are looked for, and work of other servers."""
    with serve(FakeEngine(), redis_url=outage.url) as server:
        outage.kill()
        time.sleep(3.5)
        assert httpx.get(f"{server.url}/v1/conversations").status_code == 503
        assert len([record for record in caplog.records if record.getMessage().startswith("the store failed")]) == 1
        outage.start()
        wait_until(lambda: httpx.get(f"{server.url}/v1/conversations").status_code == 200)


@pytest.mark.parametrize("policy", ["noeviction", "allkeys-lru"])
def test_a_full_store_does_not_stop_answers(serve: Callable[..., ServerThread], outage: Outage, policy: str) -> None:
    with serve(FakeEngine(), redis_url=outage.url) as server, Socket(server) as socket:
        outage.client.config_set("maxmemory-policy", policy)
        outage.client.config_set("maxmemory", "1mb")
        response = socket.ask("x")
        assert output_text(response) == "You said: x"
        assert policy == "allkeys-lru" or response["chatsrv"] == {"saved": False}
        outage.client.config_set("maxmemory", "0")
        wait_until(lambda: ready(server.url) == "ok")
        assert socket.ask("y")["status"] == "completed"


def test_a_session_that_vanishes_is_not_found_and_nothing_breaks(
    serve: Callable[..., ServerThread], outage: Outage
) -> None:
    with serve(FakeEngine(), redis_url=outage.url) as server, Socket(server) as socket:
        response = socket.ask("x")
        outage.client.flushall()
        socket.create("y", previous_response_id=response["id"])
        assert socket.recv()["error"]["code"] == "previous_response_not_found"
        assert socket.ask("z")["status"] == "completed"


def test_a_damaged_key_costs_its_own_session_only(serve: Callable[..., ServerThread], outage: Outage) -> None:
    engine = FakeEngine(delay_s=0.005)
    engine.enqueue(LONG)
    with serve(engine, redis_url=outage.url) as server, Socket(server) as socket:
        socket.create("x")
        response_id = socket.recv()["response"]["id"]
        key = keys.events(tag_of(response_id), response_id)
        wait_until(lambda: bool(outage.client.exists(key)))
        outage.client.set(key, "something else")
        assert text_of(socket.answer()) == LONG
        later = socket.ask("y")
        assert (later["status"], later.get("chatsrv")) == ("completed", None)
        assert ready(server.url) == "ok"


def test_a_server_that_finds_no_store_does_not_start(serve: Callable[..., ServerThread]) -> None:
    with pytest.raises(Exception, match="store cannot be reached"), serve(redis_url="redis://127.0.0.1:1"):
        pass


def test_keys_of_a_session_expire_together_and_live_while_it_is_used(
    serve: Callable[..., ServerThread], outage: Outage
) -> None:
    """With a session's life shorter than its answer takes."""
    engine = FakeEngine(delay_s=0.04)
    engine.enqueue(LONG[:100])
    with serve(engine, redis_url=outage.url, session_ttl_s=3) as server, Socket(server) as socket:
        conversation = server.client().conversations.create().id
        socket.create("x", conversation=conversation)
        deadline = time.monotonic() + 3.5
        while time.monotonic() < deadline:
            time.sleep(0.3)
            ttls = _ttls(outage.client, conversation)
            assert all(0 < ttl <= 3 for ttl in ttls.values()), ttls
        response = socket.answer()[-1]["response"]
        assert output_text(response) == LONG[:100]
        assert server.client().conversations.retrieve(conversation).id == conversation
        ttls = _ttls(outage.client, conversation)
        assert len({ttl for key, ttl in ttls.items() if "events" not in key}) == 1
        wait_until(lambda: not _ttls(outage.client, conversation))
        assert httpx.get(f"{server.url}/v1/conversations").json()["data"] == []


def _ttls(client: redis.Redis, conversation_id: str) -> dict[str, int]:
    names = [key.decode() for key in client.scan_iter(f"chatsrv:{{{tag_of(conversation_id)}}}:*")]
    ttls = {name: int(client.ttl(name)) for name in names}
    return {name: ttl for name, ttl in ttls.items() if ttl != -2}
