"""The WebSocket protocol: the official client for what is standard, raw frames for the rest."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from openai.types.responses import Response
from openai.types.responses.responses_server_event import ResponsesServerEvent
from pydantic import TypeAdapter

from engine import EngineStopped, RequestFailed
from tests.chatsrv.conftest import RunningServer, wait_until
from tests.chatsrv.sockets import ENDS, Socket, output_text, text_of

ORDER = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
    "response.output_text.delta",
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
    "response.completed",
]

SERVER_EVENT: TypeAdapter[Any] = TypeAdapter(ResponsesServerEvent)


def test_an_answer_streams_in_order(server: RunningServer) -> None:
    server.engine.enqueue("Hello, wörld! 👋")
    with server.client().responses.connect() as connection:
        connection.response.create(input="Hi", instructions="Be brief.", temperature=0)
        events = []
        for event in connection:
            events.append(event)
            if event.type in ENDS:
                break
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert list(dict.fromkeys(event.type for event in events)) == ORDER
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Hello, wörld! 👋"
    response = events[-1].response
    assert isinstance(response, Response)
    assert response.output_text == "Hello, wörld! 👋"
    assert response.usage.input_tokens == len(server.engine.submissions[0].prompt)
    assert response.usage.input_tokens_details.cached_tokens == 0
    assert response.temperature == 0
    assert server.engine.submissions[0].text == "system\nBe brief.user\nHiassistant\n"


async def test_the_asynchronous_client_too(server: RunningServer) -> None:
    async with server.async_client() as client, client.responses.connect() as connection:
        await connection.response.create(input="Hi")
        async for event in connection:
            if event.type in ENDS:
                break
    assert event.response.output_text == "You said: Hi"


def test_every_event_has_the_shape_of_the_clients_types(server: RunningServer) -> None:
    with Socket(server) as socket:
        socket.create("Hi", include=["message.output_text.logprobs"], top_logprobs=2, stream_id="a")
        events = socket.answer()
        socket.create("Hi", max_output_tokens=0)
        events.append(socket.recv())
    for event in events:
        SERVER_EVENT.validate_python(event, strict=True)


def test_a_character_of_several_tokens_tells_the_logprobs_of_them_all(server: RunningServer) -> None:
    server.engine.enqueue("a🦊")
    with Socket(server) as socket:
        socket.create("Hi", top_logprobs=0)
        events = socket.answer()
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    told = [bytes(byte for logprob in delta["logprobs"] for byte in logprob["bytes"]) for delta in deltas]
    assert told == [delta["delta"].encode() for delta in deltas] == [b"a", "🦊".encode()]


def test_the_next_turn_reuses_exactly_the_generated_tokens(server: RunningServer) -> None:
    """The bytes of the answer come back as the ids that were drawn, so the fake cache finds them."""
    answer = "A long enough answer to fill some blocks of sixteen tokens each, and then some."
    server.engine.enqueue(answer)
    with Socket(server) as socket:
        first = socket.ask("Tell me something.")
        second = socket.ask("And then?", previous_response_id=first["id"])
    prompt = server.engine.submissions[1].prompt
    assert bytes(token for token in prompt if token < 256).decode().count(answer) == 1
    reusable = len(server.engine.submissions[0].prompt) + len(answer)
    assert second["usage"]["input_tokens_details"]["cached_tokens"] == reusable // 16 * 16


def test_a_stop_string_ends_the_answer_and_is_never_told(server: RunningServer) -> None:
    server.engine.enqueue("ABCDEFGHIJ")
    with Socket(server) as socket:
        socket.create("go", stop=["DEFGHIJ"])
        events = socket.answer()
        follow_up = socket.ask("next", previous_response_id=events[-1]["response"]["id"])
    assert text_of(events) == "ABC"
    assert follow_up["status"] == "completed"
    assert "DEFG" not in server.engine.submissions[1].text


def test_a_limit_makes_it_incomplete(server: RunningServer) -> None:
    server.engine.enqueue("0123456789")
    with Socket(server) as socket:
        response = socket.ask("count", max_output_tokens=4)
    assert response["status"] == "incomplete"
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert output_text(response) == "0123"
    assert response["output"][0]["status"] == "incomplete"


def test_half_a_character_at_the_end_is_no_exception(server: RunningServer) -> None:
    server.engine.enqueue([*list("🌶".encode())[:2], 257])
    with Socket(server) as socket:
        response = socket.ask("pepper")
    assert (response["status"], output_text(response)) == ("completed", "\N{REPLACEMENT CHARACTER}")


@pytest.mark.parametrize("failure", [RequestFailed("NaN in row 7"), EngineStopped("thread died"), ValueError("inside")])
def test_failures_end_the_response_and_tell_nothing_of_the_inside(server: RunningServer, failure: Exception) -> None:
    server.engine.enqueue(failure)
    with Socket(server) as socket:
        socket.create("hi")
        events = socket.answer()
        assert socket.ask("again")["status"] == "completed"
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["code"] == "server_error"
    assert not any(word in json.dumps(events) for word in ("NaN", "thread", "inside", "Traceback"))


BAD_FRAMES: dict[str | bytes, tuple[str, str | None]] = {
    b"\x00\x01": ("invalid_json", None),
    "": ("invalid_json", None),
    "   ": ("invalid_json", None),
    "{": ("invalid_json", None),
    "null": ("invalid_json", None),
    "[]": ("invalid_json", None),
    '"text"': ("invalid_json", None),
    "[" * 10_000: ("invalid_json", None),
    '{"type": "response.create", "type": "x"}': ("invalid_json", "type"),
    '{"type": "response.create", "temperature": 1e999}': ("invalid_json", None),
    '{"type": "response.create", "temperature": NaN}': ("invalid_json", None),
    "{}": ("invalid_value", "type"),
    '{"type": "session.update"}': ("invalid_value", "type"),
    '{"type": 7}': ("invalid_value", "type"),
    '{"type": "response.create", "input": 7}': ("invalid_value", "input"),
    '{"type": "response.create", "input": "x", "max_output_tokens": -1}': ("invalid_value", "max_output_tokens"),
    '{"type": "response.create", "input": "x", "top_p": 7}': ("invalid_value", "top_p"),
    '{"type": "response.create", "input": "x", "temperature": -1}': ("invalid_value", "temperature"),
    '{"type": "response.create", "input": "x", "stop": [""]}': ("invalid_value", "stop"),
    '{"type": "response.create", "input": "x", "logit_bias": {"x": 1}}': ("invalid_value", "logit_bias"),
    '{"type": "response.create", "input": "x", "logit_bias": {"999": 1}}': ("invalid_value", "logit_bias"),
    r'{"type": "response.create", "input": "hi \ud83d"}': ("invalid_value", "input"),
    r'{"type": "response.create", "input": "x", "instructions": "\udfff"}': ("invalid_value", "instructions"),
    '{"type": "response.create"}': ("invalid_value", "input"),
    '{"type": "response.create", "input": []}': ("invalid_value", "input"),
    '{"type": "response.create", "input": "x", "stream_id": "a b"}': ("invalid_stream_id", "stream_id"),
    '{"type": "response.create", "input": "x", "stream_id": 7}': ("invalid_stream_id", "stream_id"),
    '{"type": "response.create", "input": "x", "model": "gpt-6"}': ("model_not_found", "model"),
    '{"type": "response.create", "input": "x", "foo": 1}': ("unknown_field", "foo"),
    '{"type": "response.create", "input": "x", "background": true}': ("unsupported_field", "background"),
    '{"type": "response.cancel", "response_id": "a:b"}': ("response_not_found", "response_id"),
    '{"type": "response.resume", "response_id": "*"}': ("response_not_found", None),
    '{"type": "response.resume", "response_id": "x", "starting_after": -7}': ("invalid_value", "starting_after"),
}


@pytest.mark.parametrize("frame", BAD_FRAMES, ids=range(len(BAD_FRAMES)))
def test_a_bad_frame_gets_an_error_and_the_socket_goes_on(server: RunningServer, frame: str | bytes) -> None:
    server.engine.paused = True
    with Socket(server) as socket:
        socket.create("undisturbed", stream_id="other")
        socket.until("response.in_progress")
        socket.connection.send(frame)
        error = socket.recv()
        server.engine.paused = False
        events = socket.answer()
        assert output_text(socket.ask("still there?")) == "You said: still there?"
    assert error["type"] == "error"
    assert 400 <= error["status"] < 500
    assert (error["error"]["code"], error["error"]["param"]) == BAD_FRAMES[frame]
    assert text_of(events) == "You said: undisturbed"


def test_a_prompt_over_the_models_length_is_refused_with_the_limit(server: RunningServer) -> None:
    limit = server.engine.max_model_len
    with Socket(server) as socket:
        socket.create("x" * limit)
        error = socket.recv()["error"]
        assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
        assert str(limit) in error["message"]
        socket.create("x", max_output_tokens=limit + 1)
        assert str(limit) in socket.recv()["error"]["message"]
        socket.create("x", max_output_tokens=limit)
        error = socket.recv()["error"]
        assert (error["code"], error["param"]) == ("context_length_exceeded", "max_output_tokens")
        assert error["message"].startswith("max_output_tokens and prompt")
        overhead = len(server.engine.submissions[0].prompt) if server.engine.submissions else 18
        assert overhead == 18
        assert socket.ask("x" * (limit - 1 - overhead), max_output_tokens=1)["status"] == "incomplete"
    assert len(server.engine.submissions) == 1


def test_lanes_are_first_in_first_out_and_beside_each_other(server: RunningServer) -> None:
    server.engine.paused = True
    with Socket(server) as socket:
        for text, lane in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("n1", None)):
            socket.create(text, **({} if lane is None else {"stream_id": lane}))
        wait_until(lambda: server.engine.running == 3)
        server.engine.paused = False
        events: list[dict[str, Any]] = []
        while sum(event["type"] in ENDS for event in events) < 4:
            events.append(socket.recv())
    assert {s.text[5:7] for s in server.engine.submissions[:3]} == {"a1", "b1", "n1"}
    by_lane: dict[str | None, list[dict[str, Any]]] = {}
    for event in events:
        by_lane.setdefault(event.get("stream_id"), []).append(event)
    assert text_of(by_lane["a"]) == "You said: a1You said: a2"
    assert text_of(by_lane["b"]) == "You said: b1"
    assert text_of(by_lane[None]) == "You said: n1"


def test_too_many_named_lanes_are_refused(server: RunningServer) -> None:
    with Socket(server) as socket:
        for lane in range(33):
            socket.create("x", stream_id=f"lane-{lane}")
        ends = [event for event in _ends(socket, 33) if event["type"] == "error"]
    assert [event["error"]["code"] for event in ends] == ["websocket_stream_limit_reached"]
    assert ends[0]["stream_id"] == "lane-32"


def _ends(socket: Socket, count: int) -> list[dict[str, Any]]:
    ends: list[dict[str, Any]] = []
    while len(ends) < count:
        if (event := socket.recv())["type"] in ENDS:
            ends.append(event)
    return ends


def test_cancel_keeps_exactly_what_was_told(server: RunningServer) -> None:
    server.engine.delay_s = 0.01
    server.engine.enqueue("0123456789" * 20)
    with Socket(server) as socket:
        socket.create("count", stream_id="a")
        events = socket.until("response.output_text.delta")
        events += socket.until("response.output_text.delta")
        socket.send("response.cancel", response_id=events[0]["response"]["id"])
        socket.create("What did you just say?", previous_response_id=events[0]["response"]["id"], stream_id="a")
        events += socket.answer()
        server.engine.delay_s = 0.0
        assert socket.answer()[-1]["type"] == "response.completed"
    assert events[-1]["type"] == "response.cancelled"
    response = events[-1]["response"]
    told = text_of(events)
    assert (response["status"], output_text(response)) == ("cancelled", told)
    assert response["output"][0]["status"] == "incomplete"
    assert told
    assert told != "0123456789" * 20
    assert server.engine.submissions[1].text == f"user\ncountassistant\n{told}user\nWhat did you just say?assistant\n"
    assert server.engine.submissions[0].aborted


def test_cancelling_what_has_ended_or_waits_does_no_harm(server: RunningServer) -> None:
    server.engine.paused = True
    with Socket(server) as socket:
        socket.create("one")
        first = socket.until("response.in_progress")[0]["response"]["id"]
        socket.send("response.cancel", response_id=first)
        socket.send("response.cancel", response_id=first)
        assert socket.answer()[-1]["type"] == "response.cancelled"
        socket.send("response.cancel", response_id=first)
        server.engine.paused = False
        assert output_text(socket.ask("two")) == "You said: two"


def test_unstored_responses_continue_on_their_socket_only(server: RunningServer) -> None:
    with Socket(server) as socket, Socket(server) as other:
        first = socket.ask("my name is Ada", store=False)
        second = socket.ask("my name?", store=False, previous_response_id=first["id"])
        assert second["status"] == "completed"
        assert "my name is Ada" in server.engine.submissions[1].text
        other.create("my name?", previous_response_id=first["id"])
        assert other.recv()["error"]["code"] == "previous_response_not_found"
        kept = socket.ask("keep this", previous_response_id=second["id"])
        assert output_text(other.ask("all?", previous_response_id=kept["id"])) == "You said: all?"
    assert "my name is Ada" in server.engine.submissions[3].text


def test_unstored_responses_end_with_their_socket(server: RunningServer) -> None:
    server.engine.paused = True
    with Socket(server) as socket:
        socket.create("x", store=False)
        socket.until("response.in_progress")
    wait_until(lambda: server.engine.running == 0)
    assert server.engine.submissions[0].aborted


def test_generate_false_warms_the_cache(server: RunningServer) -> None:
    with Socket(server) as socket:
        socket.create("a long question that will be asked again", generate=False)
        events = socket.answer()
        assert events[-1]["response"]["output"] == []
        assert events[-1]["response"]["usage"]["output_tokens"] == 0
        assert not any("output" in event["type"] for event in events)
        socket.create("now answer", previous_response_id=events[-1]["response"]["id"])
        response = socket.answer()[-1]["response"]
    assert response["usage"]["input_tokens_details"]["cached_tokens"] > 0
    assert server.engine.submissions[1].text.startswith("user\na long question that will be asked againuser\nnow")


def test_service_tier_becomes_the_priority(server: RunningServer) -> None:
    with Socket(server) as socket:
        tiers = [socket.ask("x", service_tier=tier)["service_tier"] for tier in ("auto", "flex", "fast", "priority")]
    assert tiers == ["default", "flex", "priority", "priority"]
    assert [submission.priority for submission in server.engine.submissions] == tiers


def test_timing_only_for_who_asks(server: RunningServer) -> None:
    with Socket(server) as socket:
        assert "chatsrv" not in socket.ask("x")
        extras = socket.ask("a longer question", include=["chatsrv.timing"])["chatsrv"]
    assert extras["ttft_s"] >= 0
    assert extras["tokens_per_s"] > 0


def test_a_full_queue_is_a_429(server: RunningServer) -> None:
    server.engine.max_num_waiting = 0
    with Socket(server) as socket:
        socket.create("x")
        error = socket.recv()
        server.engine.max_num_waiting = 10
        assert socket.ask("y")["status"] == "completed"
    assert (error["status"], error["error"]["code"]) == (429, "queue_full")


def test_truncation_drops_whole_old_turns_and_tells(server: RunningServer) -> None:
    server.engine.max_model_len = 400
    with Socket(server) as socket:
        previous = None
        for turn in range(8):
            server.engine.enqueue(f"answer {turn} " + "." * 20)
            fields = {"previous_response_id": previous} if previous else {}
            question = f"question {turn} " + "?" * 20
            response = socket.ask(question, truncation="auto", instructions="In French.", **fields)
            previous = response["id"]
    text = server.engine.submissions[-1].text
    assert text.startswith("system\nIn French.user\nquestion ")
    assert "question 7" in text
    assert "question 0" not in text
    num_kept = text.count("question ") - 1 + text.count("answer ")
    assert response["chatsrv"]["num_dropped_items"] == 14 - num_kept
    assert len(server.engine.submissions[-1].prompt) < 400


def test_truncation_never_drops_the_last_turn(server: RunningServer) -> None:
    server.engine.max_model_len = 200
    with Socket(server) as socket:
        first = socket.ask("short")
        socket.create("x" * 300, truncation="auto", previous_response_id=first["id"])
        assert socket.recv()["error"]["code"] == "context_length_exceeded"
        socket.create("x" * 190, previous_response_id=first["id"])
        assert socket.recv()["error"]["code"] == "context_length_exceeded"


async def test_twenty_sockets_at_once(server: RunningServer) -> None:
    async def one(number: int) -> str:
        async with server.async_client() as client, client.responses.connect() as connection:
            await connection.response.create(input=f"I am {number}")
            async for event in connection:
                if event.type in ENDS:
                    return str(event.response.output_text)
        return ""

    assert await asyncio.gather(*map(one, range(20))) == [f"You said: I am {number}" for number in range(20)]
