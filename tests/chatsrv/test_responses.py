"""Responses over HTTP, and what outlives a connection: resume, background, cancel, delete, restart."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import Response
from openai.types.responses.response_stream_event import ResponseStreamEvent
from pydantic import TypeAdapter

from tests.chatsrv.conftest import RunningServer, ServerThread, wait_until
from tests.chatsrv.sockets import Socket, output_text, text_of
from tests.fakes import FakeEngine

STREAM_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
LONG = "The quick brown fox jumps over the lazy dog. 🦊 " * 4


def post(server: RunningServer, path: str, body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, timeout=20)


def read_events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def test_a_whole_answer(server: RunningServer) -> None:
    server.engine.enqueue("Paris.")
    response = server.client().responses.create(input="Capital of France?", metadata={"k": "v"}, model="fake")
    assert response.output_text == "Paris."
    assert (response.status, response.metadata) == ("completed", {"k": "v"})
    assert Response.model_validate(response.model_dump())
    assert server.client().responses.retrieve(response.id).output_text == "Paris."


async def test_a_streamed_answer(server: RunningServer) -> None:
    async with server.async_client() as client, client.responses.stream(input="Hi", model="fake") as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert kinds[0] == "response.created"
    assert final.output_text == "You said: Hi"


def test_sse_events_have_the_shape_of_the_clients_types(server: RunningServer) -> None:
    text = post(server, "/v1/responses", {"input": "Hi", "stream": True}).text
    events = read_events(text)
    for event in events:
        STREAM_EVENT.validate_python(event, strict=True)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert text.count("event: response.completed\n") == 1


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        (b"{", 400, "invalid_json", None),
        (b"[]", 400, "invalid_value", None),
        (b'{"input": "hi \\ud83d"}', 400, "invalid_value", "input"),
        (b'{"input": "x", "max_output_tokens": -1}', 400, "invalid_value", "max_output_tokens"),
        (b'{"input": "x", "foo": 1}', 400, "unknown_field", "foo"),
        (b'{"input": "x", "tools": [{"type": "web_search"}]}', 400, "unsupported_field", "tools"),
        (b'{"input": "x", "model": "gpt-6"}', 404, "model_not_found", "model"),
        (b'{"input": "x", "previous_response_id": "../x"}', 404, "previous_response_not_found", "previous_response_id"),
        (b'{"input": "x", "stream": true, "temperature": -1}', 400, "invalid_value", "temperature"),
    ],
)
def test_bad_requests_are_answered_with_the_field(
    server: RunningServer, body: bytes, status: int, code: str, param: str | None
) -> None:
    answer = httpx.post(f"{server.url}/v1/responses", content=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param)
    assert error["message"]


def test_a_body_beyond_the_limit_is_refused(server: RunningServer) -> None:
    size = server.settings.max_message_bytes
    answer = httpx.post(f"{server.url}/v1/responses", content=b'{"input": "' + b"x" * size + b'"}')
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert str(size) in answer.json()["error"]["message"]


def test_what_does_not_exist_is_a_404(server: RunningServer) -> None:
    for response_id in ("resp_" + "x" * 32, "x", "resp_*", "resp_" + "y" * 10_000):
        with pytest.raises(openai.NotFoundError):
            server.client().responses.retrieve(response_id)
    assert httpx.get(f"{server.url}/v1/nothing").status_code == 404
    assert httpx.put(f"{server.url}/v1/responses").status_code == 405


def test_background(server: RunningServer) -> None:
    server.engine.paused = True
    client = server.client()
    response = client.responses.create(input="Take your time", background=True)
    assert response.status in ("queued", "in_progress")
    server.engine.paused = False
    wait_until(lambda: client.responses.retrieve(response.id).status == "completed")
    assert client.responses.retrieve(response.id).output_text == "You said: Take your time"


def test_a_running_response_shows_its_text_so_far(server: RunningServer) -> None:
    server.engine.paused = True
    client = server.client()
    with Socket(server) as socket:
        socket.create("x")
        response_id = socket.until("response.in_progress")[0]["response"]["id"]
        server.engine.delay_s = 0.02
        server.engine.paused = False
        socket.until("response.output_text.delta")
        partial = client.responses.retrieve(response_id)
        socket.answer()
    assert partial.status == "in_progress"
    assert "You said: x".startswith(partial.output_text)


def test_cancel_over_http_from_elsewhere(server: RunningServer) -> None:
    server.engine.paused = True
    with Socket(server) as socket:
        socket.create("x")
        response_id = socket.until("response.in_progress")[0]["response"]["id"]
        cancelled = server.client().responses.cancel(response_id)
        assert socket.answer()[-1]["type"] == "response.cancelled"
    assert cancelled.status == "cancelled"
    assert server.client().responses.cancel(response_id).status == "cancelled"
    assert server.engine.running == 0


def test_delete(server: RunningServer) -> None:
    client = server.client()
    first = client.responses.create(input="one")
    second = client.responses.create(input="two", previous_response_id=first.id)
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    client.responses.create(input="three", previous_response_id=second.id)
    assert server.engine.submissions[-1].text == "user\ntwoassistant\nYou said: twouser\nthreeassistant\n"


def test_without_its_newest_turn_a_conversation_goes_on_at_the_one_before(server: RunningServer) -> None:
    client = server.client()
    conversation = client.conversations.create().id
    _, newest = (client.responses.create(input=text, conversation=conversation) for text in ("one", "two"))
    client.responses.delete(newest.id)
    client.responses.create(input="three", conversation=conversation)
    assert server.engine.submissions[-1].text == "user\noneassistant\nYou said: oneuser\nthreeassistant\n"


def test_after_a_response_whose_answer_was_deleted_what_was_asked_is_still_known(server: RunningServer) -> None:
    client = server.client()
    conversation = client.conversations.create().id
    response = client.responses.create(input="one", conversation=conversation)
    client.conversations.items.delete(response.output[0].id or "", conversation_id=conversation)
    client.responses.create(input="two", previous_response_id=response.id)
    assert server.engine.submissions[-1].text == "user\noneuser\ntwoassistant\n"


def test_input_items(server: RunningServer) -> None:
    client = server.client()
    messages: Any = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": [{"type": "input_text", "text": "u"}]},
    ]
    response = client.responses.create(input=messages)
    newest_first = client.responses.input_items.list(response.id)
    assert [item.content[0].text for item in newest_first] == ["u", "s"]  # type: ignore[union-attr]
    page = client.responses.input_items.list(response.id, order="asc", limit=1)
    assert [item.role for item in page] == ["system", "user"]  # type: ignore[union-attr]


def test_output_items_may_come_back_as_input(server: RunningServer) -> None:
    client = server.client()
    first = client.responses.create(input="one")
    history: Any = [{"role": "user", "content": "one"}, *[item.to_dict() for item in first.output]]
    client.responses.create(input=[*history, {"role": "user", "content": "two"}])
    assert server.engine.submissions[-1].text == "user\noneassistant\nYou said: oneuser\ntwoassistant\n"


# -- resume ---------------------------------------------------------------------------------------------------------


def test_replay_from_anywhere_equals_the_original(server: RunningServer) -> None:
    server.engine.enqueue(LONG)
    original = read_events(post(server, "/v1/responses", {"input": "x", "stream": True}).text)
    response_id = original[0]["response"]["id"]
    for starting_after in (-1, 0, 1, 7, len(original) - 2, len(original) - 1):
        url = f"{server.url}/v1/responses/{response_id}?stream=true&starting_after={starting_after}"
        assert read_events(httpx.get(url).text) == original[starting_after + 1 :]


@pytest.mark.parametrize("seed", range(6))
def test_random_disconnects_lose_and_double_nothing(server: RunningServer, seed: int) -> None:
    """Each event is taken once, over sockets that drop after a random number of events, and at last over SSE."""
    chance = random.Random(seed)
    server.engine.enqueue(LONG)
    server.engine.delay_s = 0.001
    with Socket(server) as socket:
        socket.create("x")
        events = [socket.recv() for _ in range(1 + chance.randrange(20))]
    response_id = events[0]["response"]["id"]
    for _ in range(3):
        if events[-1]["type"] == "response.completed":
            break
        with Socket(server) as socket:
            socket.send("response.resume", response_id=response_id, starting_after=events[-1]["sequence_number"])
            for _ in range(chance.randrange(60)):
                events.append(socket.recv())
                if events[-1]["type"] == "response.completed":
                    break
    rest = f"{server.url}/v1/responses/{response_id}?stream=true&starting_after={events[-1]['sequence_number']}"
    events += read_events(httpx.get(rest, timeout=20).text)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events].count("response.completed") == 1
    assert text_of(events) == output_text(events[-1]["response"]) == LONG


def test_the_official_client_resumes_over_sse(server: RunningServer) -> None:
    server.engine.enqueue(LONG)
    client = server.client()
    response = client.responses.create(input="x", background=True)
    stream = client.responses.retrieve(response.id, stream=True, starting_after=3)
    events = list(stream)
    assert events[0].sequence_number == 4
    assert events[-1].type == "response.completed"


def test_another_server_on_the_same_store_takes_over(serve: Callable[..., ServerThread], redis_server: str) -> None:
    """Resume, live and past, cancel, continue and delete, from a process that did not generate."""
    here, there = FakeEngine(), FakeEngine(delay_s=0.01)
    there.enqueue(LONG)
    with (
        serve(there, redis_url=redis_server) as remote,
        serve(here, redis_url=redis_server) as local,
        Socket(remote) as far,
        Socket(local) as near,
    ):
        far.create("x")
        response_id = far.until("response.in_progress")[0]["response"]["id"]
        near.send("response.resume", response_id=response_id)
        assert [e["sequence_number"] for e in near.until("response.output_text.delta")][:3] == [0, 1, 2]
        near.send("response.cancel", response_id=response_id)
        assert near.answer()[-1]["type"] == "response.cancelled"
        told = text_of(far.answer())
        again = near.ask("and now?", previous_response_id=response_id)
        assert here.submissions[0].text == f"user\nxassistant\n{told}user\nand now?assistant\n"
        assert local.client().responses.retrieve(response_id).output_text == told
        local.client().responses.delete(again["id"])


def test_history_survives_a_restart(serve: Callable[..., ServerThread], store_url: str) -> None:
    with serve(redis_url=store_url) as server:
        first = server.client().responses.create(input="remember me")
    engine = FakeEngine()
    with serve(engine, redis_url=store_url) as server:
        assert server.client().responses.retrieve(first.id).output_text == "You said: remember me"
        server.client().responses.create(input="well?", previous_response_id=first.id)
    assert engine.submissions[0].text == "user\nremember meassistant\nYou said: remember meuser\nwell?assistant\n"


def test_nobody_following_ends_a_stored_response_after_the_grace(serve: Callable[..., ServerThread]) -> None:
    engine = FakeEngine(paused=True)
    with serve(engine, disconnect_grace_s=0.2) as server:
        with Socket(server) as socket:
            socket.create("x")
            response_id = socket.until("response.in_progress")[0]["response"]["id"]
        assert engine.running == 1
        wait_until(lambda: engine.running == 0)
        wait_until(lambda: server.client().responses.retrieve(response_id).status == "cancelled")


def test_expired_events_are_not_resumable_but_the_answer_is_there(serve: Callable[..., ServerThread]) -> None:
    with serve(events_ttl_s=1) as server, Socket(server) as socket:
        response = socket.ask("x")

        def is_gone() -> bool:
            socket.send("response.resume", response_id=response["id"])
            return socket.answer()[-1]["type"] == "error"

        wait_until(is_gone)
        socket.send("response.resume", response_id=response["id"])
        refusal = socket.recv()
        assert refusal["error"]["code"] == "not_resumable"
        assert output_text(refusal["response"]) == "You said: x"
        answer = httpx.get(f"{server.url}/v1/responses/{response['id']}?stream=true")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "not_resumable")
        assert server.client().responses.retrieve(response["id"]).output_text == "You said: x"


def test_leaving_an_unstored_request_stops_it(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    server.engine.paused = True
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/v1/responses", json={"input": "x", "store": False}, timeout=0.3)
    wait_until(lambda: server.engine.running == 0)
    assert server.engine.submissions[0].aborted
    assert "Traceback" not in caplog.text


def test_the_grace_begins_when_the_last_follower_leaves(serve: Callable[..., ServerThread]) -> None:
    engine = FakeEngine(paused=True)
    with serve(engine, disconnect_grace_s=1.0) as server:
        with Socket(server) as socket:
            socket.create("x")
            response_id = socket.until("response.in_progress")[0]["response"]["id"]
        time.sleep(0.6)
        with Socket(server) as socket:
            socket.send("response.resume", response_id=response_id)
            socket.recv()
            began = time.monotonic()
        wait_until(lambda: engine.running == 0)
        assert time.monotonic() - began >= 1.0


def test_what_another_server_runs_is_cancelled_when_it_is_deleted(
    serve: Callable[..., ServerThread], redis_server: str
) -> None:
    engine = FakeEngine(paused=True)
    with serve(engine, redis_url=redis_server) as far, serve(redis_url=redis_server) as near, Socket(far) as socket:
        socket.create("x")
        response_id = socket.until("response.in_progress")[0]["response"]["id"]
        near.client().responses.delete(response_id)
        assert socket.answer()[-1]["type"] == "response.cancelled"
        for server in (far, near):
            with pytest.raises(openai.NotFoundError):
                server.client().responses.retrieve(response_id)
        assert engine.running == 0


def test_a_turn_that_runs_keeps_its_place_when_the_one_before_is_deleted(server: RunningServer) -> None:
    client = server.client()
    conversation = client.conversations.create().id
    _, first = (client.responses.create(input=text, conversation=conversation) for text in ("zero", "one"))
    server.engine.paused = True
    with Socket(server) as socket:
        socket.create("two", conversation=conversation)
        socket.until("response.in_progress")
        client.responses.delete(first.id)
        server.engine.paused = False
        socket.answer()
        socket.ask("three", conversation=conversation)
    kept = "".join(f"user\n{text}assistant\nYou said: {text}" for text in ("zero", "two"))
    assert server.engine.submissions[-1].text == f"{kept}user\nthreeassistant\n"
