"""``response.steer``: accepted input ends the answer and goes on in a successor; what cannot go on comes back."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.responses import ResponseSteerAcceptedEvent, ResponseSteerFailedEvent

from chatsrv.steering import Steering, successor
from chatsrv.wire.create import MAX_INPUT_ITEMS, ResponseCreate
from chatsrv.wire.items import InputMessage
from tests.chatsrv.conftest import RunningServer
from tests.chatsrv.sockets import Socket, output_text, text_of

LONG = "0123456789" * 40


def started(server: RunningServer, socket: Socket, **fields: Any) -> list[dict[str, Any]]:
    """Events of a long answer up to its first words."""
    server.engine.delay_s = 0.005
    server.engine.enqueue(LONG)
    socket.create("count", **fields)
    return socket.until("response.output_text.delta")


@pytest.mark.parametrize("fields", [{}, {"store": False}, {"stream_id": "a", "instructions": "Be brief."}])
def test_a_steered_answer_is_succeeded(server: RunningServer, fields: dict[str, Any]) -> None:
    with Socket(server) as socket:
        events = started(server, socket, **fields)
        first = events[0]["response"]["id"]
        socket.send("response.steer", previous_response_id=first, input="stop, say hello")
        events += socket.answer()
        second = socket.answer()
    (accepted,) = [event for event in events if event["type"] == "response.steer.accepted"]
    ResponseSteerAcceptedEvent.model_validate(accepted, strict=True)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": "steered"}
    assert second[-1]["response"]["previous_response_id"] == first
    assert output_text(second[-1]["response"]) == "You said: stop, say hello"
    assert {event.get("stream_id") for event in events + second} == {fields.get("stream_id")}
    system = "system\nBe brief." if "instructions" in fields else ""
    expected = f"{system}user\ncountassistant\n{text_of(events)}user\nstop, say helloassistant\n"
    assert server.engine.submissions[1].text == expected


async def test_the_official_client_steers(server: RunningServer) -> None:
    server.engine.delay_s = 0.005
    server.engine.enqueue(LONG)
    responses: list[Any] = []
    async with server.async_client() as client, client.responses.connect() as connection:
        await connection.response.create(input="count")
        async for event in connection:
            if event.type == "response.in_progress" and not responses:
                hello: Any = [{"type": "message", "role": "user", "content": "hello"}]
                await connection.response.steer(previous_response_id=event.response.id, input=hello)
            if event.type in ("response.incomplete", "response.completed"):
                responses.append(event.response)
            if len(responses) == 2:
                break
    assert responses[0].incomplete_details.reason == "steered"
    assert responses[1].output_text == "You said: hello"


@pytest.mark.parametrize(
    ("steer_input", "code"),
    [
        ("", "invalid_input"),
        ([], "invalid_input"),
        ([{"type": "message", "role": "system", "content": "x"}], "invalid_input"),
    ],
)
def test_input_that_cannot_steer_comes_back(server: RunningServer, steer_input: Any, code: str) -> None:
    with Socket(server) as socket:
        response_id = started(server, socket)[0]["response"]["id"]
        socket.send("response.steer", previous_response_id=response_id, input=steer_input)
        failed = socket.until("response.steer.failed")[-1]
        socket.send("response.cancel", response_id=response_id)
        socket.answer()
    assert (failed["error"]["code"], failed["steer"]["previous_response_id"]) == (code, response_id)


def test_what_does_not_run_here_cannot_be_steered(server: RunningServer) -> None:
    with Socket(server) as socket, Socket(server) as other:
        done = socket.ask("x")["id"]
        running = started(server, other)[0]["response"]["id"]
        for response_id in (done, running, "resp_unknown"):
            socket.send("response.steer", previous_response_id=response_id, input="y")
            failed = socket.recv()
            ResponseSteerFailedEvent.model_validate(failed, strict=True)
            assert failed["error"]["code"] == "response_not_found"
            assert failed["steer"]["input"] == "y"


def test_a_successor_that_cannot_be_made_gives_the_input_back(server: RunningServer) -> None:
    with Socket(server) as socket:
        events = started(server, socket)
        socket.send("response.steer", previous_response_id=events[0]["response"]["id"], input="y" * 5000)
        events += socket.answer()
        (accepted,) = [event for event in events if event["type"] == "response.steer.accepted"]
        failed = socket.recv()
    assert (failed["type"], failed["error"]["code"]) == ("response.steer.failed", "successor_creation_failed")
    assert failed["steer"]["id"] == accepted["steer"]["id"]
    assert failed["steer"]["input"] == "y" * 5000


def test_a_successor_has_all_that_was_taken() -> None:
    messages = [InputMessage(role="user", content=str(number)) for number in range(MAX_INPUT_ITEMS)]
    steerings = [Steering("resp_1", messages), Steering("resp_1", "and more")]
    request = successor(ResponseCreate(input="x"), "resp_1", steerings)
    assert [message.text for message in request.messages] == [*map(str, range(MAX_INPUT_ITEMS)), "and more"]


def test_several_submissions_go_on_together(server: RunningServer) -> None:
    with Socket(server) as socket:
        response_id = started(server, socket)[0]["response"]["id"]
        for number in range(3):
            socket.send("response.steer", previous_response_id=response_id, input=f"<{number}>")
        events = socket.answer() + socket.answer()
        accepted = sum(event["type"] == "response.steer.accepted" for event in events)
    text = "".join(f"user\n<{number}>" for number in range(accepted))
    assert accepted >= 1
    assert server.engine.submissions[-1].text.endswith(f"{text}assistant\n")
