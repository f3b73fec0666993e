"""Whatever a reader loses, in the end it has what an undisturbed one has: every event once, in order."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chatsrv.websocket import MAX_RESUMING
from tests.chatsrv.conftest import RunningServer
from tests.chatsrv.processes import ServerProcess, save_model
from tests.chatsrv.sockets import ENDS, Served, Socket, output_text, text_of
from tests.fakes import FakeEngine

Transport = Literal["socket", "sse"]

# Each character is one to four tokens of the scripted engine, so that readers leave in the middle of characters too.
TEXTS = st.text(alphabet="aß→🦊", min_size=1, max_size=30)
LEAVES: st.SearchStrategy[list[tuple[Transport, int]]] = st.lists(
    st.tuples(st.sampled_from(["socket", "sse"]), st.integers(0, 12)), max_size=4
)


@pytest.mark.parametrize("shared_server", ["embedded", "redis"], indirect=True)
def test_numbers_begin_anew_in_the_next_turn(server: RunningServer) -> None:
    previous: dict[str, Any] = {}
    for text in ("a" * 300, "b" * 40):
        server.engine.delay_s = 0.0005
        server.engine.enqueue(text)
        events = _create(server, 5, **previous)
        previous = {"previous_response_id": events[0]["response"]["id"]}
        for count in (90, 1, 150, 10**6):
            events += _follow_socket(server, previous["previous_response_id"], events[-1], count)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert text_of(events) == output_text(events[-1]["response"]) == text


@pytest.mark.parametrize("shared_server", ["embedded", "redis"], indirect=True)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=TEXTS, first=st.integers(1, 12), leaves=LEAVES, preempted_after=st.none() | st.integers(0, 20))
def test_replay_and_live_are_the_undisturbed_stream(
    server: RunningServer, text: str, first: int, leaves: list[tuple[Transport, int]], preempted_after: int | None
) -> None:
    vars(server.engine).update(vars(FakeEngine(delay_s=0.0005, preempted_after=preempted_after)))
    server.engine.enqueue(text)
    with Socket(server) as steady:
        events = _create(server, first)
        response_id = events[0]["response"]["id"]
        steady.send("response.resume", response_id=response_id)
        for transport, count in [*leaves, ("sse", 10**6)]:
            follow = _follow_socket if transport == "socket" else _follow_sse
            events += follow(server, response_id, events[-1], count)
        undisturbed = steady.answer()
    assert events == undisturbed
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert text_of(events) == output_text(events[-1]["response"]) == text


@pytest.mark.parametrize("beyond", [0, 1, 1000])
def test_a_resume_after_the_last_event_is_told_that_nothing_follows(server: RunningServer, beyond: int) -> None:
    with Socket(server) as socket:
        socket.create("hi")
        last = socket.answer()[-1]
        position = last["sequence_number"] + beyond
        resume = {"response_id": last["response"]["id"], "starting_after": position, "stream_id": "a"}
        socket.send("response.resume", **resume)
        refusal = socket.recv()
        assert (refusal["type"], refusal["stream_id"]) == ("error", "a")
        assert refusal["error"]["code"] == "nothing_to_resume"
        assert str(position) in refusal["error"]["message"]
        assert output_text(refusal["response"]) == output_text(last["response"]) == "You said: hi"
        assert output_text(socket.ask("on")) == "You said: on"


def test_readers_who_leave_while_their_answer_is_preempted_have_all_of_it(tmp_path: Path) -> None:
    """Three answers of 200 tokens share room for not even two."""
    settings = {"num_blocks": 20, "num_swap_blocks": 24, "max_model_len": 256}
    with ServerProcess(save_model(tmp_path / "model"), tmp_path / "data", **settings) as started:
        server = started.ready()
        tiers = ("flex", "flex", "priority")
        # Drawn answers may end soon; the likeliest ones go on and on.
        firsts = [_create(server, 1, max_output_tokens=200, temperature=0, service_tier=tier) for tier in tiers]
        with ThreadPoolExecutor() as threads:
            answers = list(threads.map(lambda events: _read_leaving_at_notices(server, events), firsts))
        kinds = {event["type"] for events in answers for event in events}
        assert {"chatsrv.preempted", "chatsrv.resumed"} <= kinds
        for events in answers:
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
            assert text_of(events) == output_text(events[-1]["response"])
            assert events == _follow_socket(
                server, events[0]["response"]["id"], {"type": "", "sequence_number": -1}, 10**6
            )


def _read_leaving_at_notices(server: Served, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All events, on a new socket after each notice."""
    while events[-1]["type"] not in ENDS:
        with Socket(server) as socket:
            last = events[-1]["sequence_number"]
            socket.send("response.resume", response_id=events[0]["response"]["id"], starting_after=last)
            events += socket.until("chatsrv.preempted", "chatsrv.resumed", *ENDS)
    return events


def _create(server: Served, count: int, **fields: Any) -> list[dict[str, Any]]:
    with Socket(server) as socket:
        socket.create("x", include=["chatsrv.notices"], **fields)
        return _take(socket, count)


def _follow_socket(server: Served, response_id: str, last: dict[str, Any], count: int) -> list[dict[str, Any]]:
    if last["type"] in ENDS:
        return []
    with Socket(server) as socket:
        socket.send("response.resume", response_id=response_id, starting_after=last["sequence_number"])
        return _take(socket, count)


def _follow_sse(server: RunningServer, response_id: str, last: dict[str, Any], count: int) -> list[dict[str, Any]]:
    url = f"{server.url}/v1/responses/{response_id}?stream=true&starting_after={last['sequence_number']}"
    events = []
    with httpx.stream("GET", url, timeout=20) as answer:
        for line in answer.iter_lines():
            if len(events) == count:
                break
            if line.startswith("data: "):
                events.append(json.loads(line.removeprefix("data: ")))
    return events


def _take(socket: Socket, count: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    while len(events) < count and not (events and events[-1]["type"] in ENDS):
        events.append(socket.recv())
    return events


def test_a_client_that_asks_for_more_than_it_reads_is_refused(server: RunningServer) -> None:
    server.engine.paused = True
    with Socket(server) as socket, Socket(server) as greedy:
        socket.create("x")
        response_id = socket.until("response.in_progress")[0]["response"]["id"]
        for _ in range(MAX_RESUMING + 1):
            greedy.send("response.resume", response_id=response_id)
        refusal = greedy.until("error")[-1]
        assert (refusal["status"], refusal["error"]["code"]) == (429, "queue_full")
        server.engine.paused = False
        ends = [greedy.answer()[-1]["type"] for _ in range(MAX_RESUMING)]
        assert ends == ["response.completed"] * MAX_RESUMING
