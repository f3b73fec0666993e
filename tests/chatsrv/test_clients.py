"""Other clients at the real server: two more WebSocket libraries, and what the official client has around its own."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
import websocket as websocket_client
from openai.lib.responses_websocket import (
    AsyncResponsesWebSocketSession,
    ResponsesWebSocketError,
    ResponsesWebSocketLimits,
    ResponsesWebSocketSession,
)
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Event, Ping, Pong, Request, TextMessage
from wsproto.extensions import PerMessageDeflate

from tests.chatsrv.conftest import RunningServer
from tests.chatsrv.sockets import ENDS, output_text

TEXT = "wörld 🦊 " * 20
QUESTION = json.dumps({"type": "response.create", "input": TEXT}, ensure_ascii=False)
CLOSE_CODES = [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 4000, 4999]
LIMITS = ResponsesWebSocketLimits(
    max_lanes=8, max_events_per_lane=1000, max_events=4000, max_bytes_per_lane=10**6, max_bytes=4 * 10**6
)


@pytest.fixture(autouse=True)
def pace(server: RunningServer) -> None:
    server.engine.delay_s = 0.0005


# -- websocket-client -------------------------------------------------------------------------------------------------


def test_websocket_client_with_fragments_and_pings(server: RunningServer) -> None:
    """It knows no compression, and answers the server's pings by itself."""
    connection = websocket_client.create_connection(server.ws_url, timeout=20)
    data = QUESTION.encode()
    cuts = [0, 1, 50, 51, len(data)]  # also within a character
    for number, (start, end) in enumerate(pairwise(cuts)):
        opcode = websocket_client.ABNF.OPCODE_CONT if number else websocket_client.ABNF.OPCODE_TEXT
        connection.send_frame(websocket_client.ABNF.create_frame(data[start:end], opcode, int(end == len(data))))
    events: list[dict[str, Any]] = []
    num_pongs = 0
    while not events or events[-1]["type"] not in ENDS:
        opcode, payload = connection.recv_data(control_frame=True)
        if opcode == websocket_client.ABNF.OPCODE_PONG:
            num_pongs += 1
        elif opcode == websocket_client.ABNF.OPCODE_TEXT:
            events.append(json.loads(payload))
            if len(events) % 40 == 0:
                connection.ping(b"x")
    assert output_text(events[-1]["response"]) == f"You said: {TEXT}"
    assert num_pongs > 0
    connection.close(status=1000)


# -- wsproto ----------------------------------------------------------------------------------------------------------


class WsprotoClient:
    """wsproto does no I/O; this is the socket it lacks."""

    def __init__(self, server: RunningServer, *, offers_compression: bool) -> None:
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._socket = socket.create_connection(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), 20)
        extensions = [PerMessageDeflate()] if offers_compression else []
        self.send(Request(host=server.url.removeprefix("http://"), target="/v1/responses", extensions=extensions))
        (accepted,) = self.receive()
        assert isinstance(accepted, AcceptConnection)
        self.extensions = [extension.name for extension in accepted.extensions if extension.enabled()]

    def send(self, event: Event) -> None:
        self._socket.sendall(self._protocol.send(event))

    def receive(self) -> list[Event]:
        """What has come in, at least one event."""
        while True:
            if events := list(self._protocol.events()):
                return events
            self._protocol.receive_data(self._socket.recv(65536) or None)

    def close(self) -> None:
        self._socket.close()


@contextmanager
def wsproto_client(server: RunningServer, *, offers_compression: bool = False) -> Iterator[WsprotoClient]:
    client = WsprotoClient(server, offers_compression=offers_compression)
    yield client
    client.close()


@pytest.mark.parametrize("offers_compression", [False, True])
def test_wsproto_with_fragments_and_pings_between_them(server: RunningServer, offers_compression: bool) -> None:
    """Compression may be offered, and is declined: its state would cost each socket more than all the rest."""
    with wsproto_client(server, offers_compression=offers_compression) as client:
        assert client.extensions == []
        for start in range(0, len(QUESTION), 70):
            client.send(TextMessage(QUESTION[start : start + 70], message_finished=start + 70 >= len(QUESTION)))
            client.send(Ping(b"between fragments"))
        text, num_pongs, events = "", 0, []
        while not events or events[-1]["type"] not in ENDS:
            for event in client.receive():
                num_pongs += isinstance(event, Pong)
                if isinstance(event, TextMessage):
                    text += event.data
                    if event.message_finished:
                        events.append(json.loads(text))
                        text = ""
    assert num_pongs == -(-len(QUESTION) // 70)
    assert output_text(events[-1]["response"]) == f"You said: {TEXT}"


@pytest.mark.parametrize("code", CLOSE_CODES)
def test_a_close_frame_is_answered_with_its_code_in_mid_answer(server: RunningServer, code: int) -> None:
    with wsproto_client(server) as client:
        client.send(TextMessage(QUESTION))
        client.receive()
        client.send(CloseConnection(code, "bye"))
        while True:
            closed = [event for event in client.receive() if isinstance(event, CloseConnection)]
            if closed:
                break
    assert closed[0].code == code


def test_a_message_in_many_frames_has_the_limit_of_one_in_one(server: RunningServer) -> None:
    limit = 2 * server.settings.max_message_bytes  # of what is read at all
    chunk = "x" * (limit // 8)
    with wsproto_client(server) as client:
        for _ in range(9):
            client.send(TextMessage(chunk, message_finished=False))
        closed = [event for event in client.receive() if isinstance(event, CloseConnection)]
    assert closed[0].code == 1009


# -- the official client's own reconnect and session ----------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves the lost socket open
def test_the_official_client_reconnects_and_resumes(server: RunningServer) -> None:
    """It comes back by itself; what it missed is asked for with ``response.resume``."""
    events: list[Any] = []

    def resume(_: object) -> None:
        last = events[-1].sequence_number
        request = {"type": "response.resume", "response_id": events[0].response.id, "starting_after": last}
        connection.send_raw(json.dumps(request))

    with server.client().responses.connect(on_reconnecting=resume, initial_delay=0.01) as connection:
        connection.response.create(input=TEXT)
        for event in connection:
            events.append(event)
            if event.type in ENDS:
                break
            if len(events) in (3, 50):
                connection._connection.socket.shutdown(socket.SHUT_RDWR)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].response.output_text == f"You said: {TEXT}"


def test_the_session_helper_runs_lanes_beside_each_other(server: RunningServer) -> None:
    with (
        server.client().responses.connect() as connection,
        ResponsesWebSocketSession(connection, limits=LIMITS) as session,
    ):
        lanes = [session.lane(name) for name in ("a", "b")]
        for lane in lanes:
            lane.send({"type": "response.create", "input": TEXT})
        first, second = (lane.get_final_response(timeout=20) for lane in lanes)
        lanes[0].send({"type": "response.create", "input": "on", "previous_response_id": second.id})
        third = lanes[0].get_final_response(timeout=20)
    assert first.output_text == second.output_text == f"You said: {TEXT}"
    assert third.output_text == "You said: on"


async def test_the_asynchronous_session_helper_tells_errors(server: RunningServer) -> None:
    async with (
        server.async_client() as client,
        client.responses.connect() as connection,
        AsyncResponsesWebSocketSession(connection, limits=LIMITS) as session,
    ):
        lane = session.lane("a")
        await lane.send({"type": "response.create", "input": "x", "top_p": 7})
        with pytest.raises(ResponsesWebSocketError) as caught:
            await lane.get_final_response()
        assert caught.value.event.error.param == "top_p"
        await lane.send({"type": "response.create", "input": "x", "max_output_tokens": 3})
        response = await lane.get_final_response()
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")


def test_a_cancelled_response_ends_for_the_session_helper_by_reading(server: RunningServer) -> None:
    """The client does not know ``response.cancelled``: a lane reads it, and the next create needs another lane."""
    with (
        server.client().responses.connect() as connection,
        ResponsesWebSocketSession(connection, limits=LIMITS) as session,
    ):
        lane = session.lane("a")
        lane.send({"type": "response.create", "input": TEXT})
        created = lane.recv(timeout=20)
        lane.send({"type": "response.cancel", "response_id": created.response.id})
        while (event := lane.recv(timeout=20)).type != "response.cancelled":
            pass
        assert event.to_dict()["response"]["status"] == "cancelled"
        lane.close()
        successor = session.lane("b")
        successor.send({"type": "response.create", "input": "on", "previous_response_id": created.response.id})
        assert successor.get_final_response(timeout=20).output_text == "You said: on"
