"""A server that is asked to go: what runs ends, what is new is refused, sockets are told to come back elsewhere."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

import chatsrv.server
from chatsrv.drain import Drain
from chatsrv.errors import Restarting
from tests.chatsrv.conftest import RunningServer, ServerThread, wait_until
from tests.chatsrv.processes import ServerProcess, save_model
from tests.chatsrv.sockets import Socket, output_text
from tests.fakes import FakeEngine


def test_new_work_is_welcome_until_it_begins() -> None:
    drain = Drain()
    drain.check()
    drain.begin()
    with pytest.raises(Restarting):
        drain.check()
    assert not drain.is_over
    drain.end()
    assert drain.is_over


def closed_with(socket: Socket) -> int | None:
    """The close code, after whatever still comes."""
    try:
        while True:
            socket.recv()
    except ConnectionClosed as error:
        return error.rcvd.code if error.rcvd else None


@contextmanager
def connected(server: RunningServer) -> Iterator[httpx.Client]:
    """A client with a connection that stays."""
    with httpx.Client(base_url=server.url) as client:
        assert client.get("/readyz").status_code == 200
        yield client


def refuses_connections(server: RunningServer) -> bool:
    try:
        httpx.get(server.url)
    except httpx.ConnectError:
        return True
    return False


def test_running_answers_end_and_nothing_new_begins(serve: Callable[..., ServerThread]) -> None:
    engine = FakeEngine(paused=True)
    thread = serve(engine, drain_timeout_s=60)
    with thread as server, connected(server) as client, Socket(server) as idle, Socket(server) as busy:
        early = socket.create_connection((client.base_url.host, client.base_url.port))
        busy.create("x", stream_id="a")
        busy.until("response.in_progress")
        thread.stop()
        assert closed_with(idle) == 1012
        with pytest.raises(ConnectionRefusedError):
            Socket(server)
        ready = client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (503, "draining")
        for path, body in {"/v1/responses": {"input": "x"}, "/v1/completions": {"prompt": "x"}}.items():
            refused = client.post(path, json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_restarting")
            assert refused.headers["Retry-After"] == "1"
        with pytest.raises(InvalidStatus) as upgrade:
            Socket(server, sock=early)
        assert upgrade.value.response.status_code == 503
        busy.create("y", stream_id="b")
        error = busy.recv()
        assert (error["status"], error["error"]["code"], error["stream_id"]) == (503, "server_restarting", "b")
        engine.paused = False
        assert output_text(busy.answer()[-1]["response"]) == "You said: x"
        assert closed_with(busy) == 1012


def test_what_is_on_its_way_when_the_signal_comes_is_answered(
    serve: Callable[..., ServerThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chatsrv.server, "LAST_REQUESTS_S", 3600.0)
    thread = serve(FakeEngine(), drain_timeout_s=3600)
    with thread as server, connected(server) as client:
        thread.stop()
        wait_until(lambda: refuses_connections(server))
        assert client.post("/v1/responses", json={"input": "x"}).json()["status"] == "completed"
        thread.stop()


def test_who_hears_what_runs_elsewhere_is_told_to_come_back(
    serve: Callable[..., ServerThread], redis_server: str
) -> None:
    thread = serve(FakeEngine(), drain_timeout_s=0.1, redis_url=redis_server)
    elsewhere = FakeEngine(paused=True)
    with thread as server, serve(elsewhere, redis_url=redis_server) as other, Socket(other) as asking:
        asking.create("x")
        response_id = asking.until("response.in_progress")[0]["response"]["id"]
        with httpx.stream("GET", f"{server.url}/v1/responses/{response_id}?stream=true", timeout=60) as sse:
            lines = sse.iter_lines()
            while "response.created" not in next(lines):
                pass
            thread.stop()
            assert any("server_restarting" in line for line in lines)
        elsewhere.paused = False
        assert output_text(asking.answer()[-1]["response"]) == "You said: x"


def test_at_the_limit_streams_are_told_to_come_back(serve: Callable[..., ServerThread]) -> None:
    engine = FakeEngine(paused=True)
    thread = serve(engine, drain_timeout_s=0.3)
    body = {"input": "x", "stream": True}
    with thread as server, httpx.stream("POST", f"{server.url}/v1/responses", json=body) as sse:
        lines = sse.iter_lines()
        while "response.in_progress" not in next(lines):
            pass
        thread.stop()
        assert any("server_restarting" in line for line in lines)


@pytest.mark.parametrize("is_stored", [True, False])
def test_at_the_limit_a_whole_answer_is_refused_and_leaves_nothing(
    serve: Callable[..., ServerThread], is_stored: bool
) -> None:
    engine = FakeEngine()
    thread = serve(engine, drain_timeout_s=0.3)
    with thread as server, ThreadPoolExecutor() as pool:
        conversation = server.client().conversations.create().id
        server.client().responses.create(input="one", conversation=conversation)
        engine.paused = True
        body = {"input": "two", **({"conversation": conversation} if is_stored else {"store": False})}
        asking = pool.submit(httpx.post, f"{server.url}/v1/responses", json=body, timeout=60)
        wait_until(lambda: engine.running == 1)
        thread.stop()
        refused = asking.result()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_restarting")
    engine = FakeEngine()
    with serve(engine) as server:
        server.client().responses.create(input="three", conversation=conversation)
        assert engine.submissions[-1].text == "user\noneassistant\nYou said: oneuser\nthreeassistant\n"
        assert len(engine.submissions) == 1


def test_who_waits_for_an_answer_that_is_undone_is_refused_too(
    serve: Callable[..., ServerThread], waiting: threading.Event
) -> None:
    engine = FakeEngine(paused=True)
    thread = serve(engine, drain_timeout_s=0.3)
    with thread as server, ThreadPoolExecutor() as pool:
        conversation = server.client().conversations.create().id
        asking = []
        for text, has_come in {"one": lambda: engine.running == 1, "two": waiting.is_set}.items():
            body = {"input": text, "conversation": conversation}
            asking.append(pool.submit(httpx.post, f"{server.url}/v1/responses", json=body, timeout=60))
            wait_until(has_come)
        thread.stop()
        for refused in (each.result() for each in asking):
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_restarting")
    with serve(FakeEngine()) as server:
        assert list(server.client().conversations.items.list(conversation)) == []


def test_what_cannot_be_undone_is_refused_all_the_same(serve: Callable[..., ServerThread]) -> None:
    """Another answer to the same question goes on elsewhere."""
    engine = FakeEngine(paused=True)
    thread = serve(engine, drain_timeout_s=0.3)
    with thread as server, ThreadPoolExecutor() as pool, Socket(server) as socket:
        client = server.client()
        conversation = client.conversations.create().id
        body = {"input": "x", "conversation": conversation}
        asking = pool.submit(httpx.post, f"{server.url}/v1/responses", json=body, timeout=60)
        wait_until(lambda: engine.running == 1)
        question = next(iter(client.conversations.items.list(conversation, order="asc")))
        socket.send("response.create", conversation=conversation, parent_id=question.id)
        socket.until("response.in_progress")
        thread.stop()
        refused = asking.result()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_restarting")


@pytest.mark.parametrize("stream", [True, False])
def test_at_the_limit_completions_end_with_a_reason(serve: Callable[..., ServerThread], stream: bool) -> None:
    engine = FakeEngine(paused=True)
    thread = serve(engine, drain_timeout_s=0.3)
    body = {"messages": [{"role": "user", "content": "x"}], "stream": stream}
    with thread as server, ThreadPoolExecutor() as pool:
        asking = pool.submit(httpx.post, f"{server.url}/v1/chat/completions", json=body, timeout=60)
        wait_until(lambda: engine.running == 1)
        thread.stop()
        answer = asking.result()
    assert answer.status_code == (200 if stream else 503)
    assert "server_restarting" in answer.text
    assert answer.text.endswith("data: [DONE]\n\n") is stream
    assert engine.submissions[-1].aborted


def test_what_is_not_stored_fails_with_a_reason(serve: Callable[..., ServerThread]) -> None:
    thread = serve(FakeEngine(paused=True), drain_timeout_s=0.1)
    with thread as server, Socket(server) as socket:
        socket.create("x", store=False)
        socket.until("response.in_progress")
        thread.stop()
        last = socket.answer()[-1]
    assert (last["type"], last["response"]["error"]["message"]) == (
        "response.failed",
        "the server was stopped while it answered",
    )


def test_a_second_signal_waits_for_nothing(serve: Callable[..., ServerThread]) -> None:
    thread = serve(FakeEngine(paused=True), drain_timeout_s=3600)
    with thread as server, Socket(server) as socket:
        socket.create("x")
        response_id = socket.until("response.in_progress")[0]["response"]["id"]
        began = time.monotonic()
        thread.stop()
        thread.stop()
        assert closed_with(socket) == 1012
    assert time.monotonic() - began < 600
    with serve(FakeEngine()) as server, Socket(server) as socket:
        socket.send("response.resume", response_id=response_id)
        assert output_text(socket.answer()[-1]["response"]) == "You said: x"
        wait_until(lambda: server.client().responses.retrieve(response_id).status == "completed")


def test_a_start_that_compiles_is_ended_at_once(tmp_path: Path) -> None:
    compiler, started = tmp_path / "compiler", tmp_path / "started"
    compiler.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit\ntouch "{started}"\nexec sleep 600\n')
    compiler.chmod(0o700)
    with ServerProcess(save_model(tmp_path / "model"), tmp_path, compiler=str(compiler)) as server:
        wait_until(started.exists, 120)
        server.send(signal.SIGTERM)
        assert server.wait() == 0
