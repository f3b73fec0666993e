"""A client that does not read costs the server nothing but its place, and nobody else anything."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.uri import parse_uri

from chatsrv import websocket
from tests.chatsrv.conftest import RunningServer, wait_until
from tests.chatsrv.sockets import ENDS, Socket, output_text, text_of

HUGE = "0123456789" * 1000


class Sleeper:
    """A client that reads only when told to; no library in between reads ahead for it."""

    def __init__(self, server: RunningServer) -> None:
        self._protocol = ClientProtocol(parse_uri(server.ws_url))
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.settimeout(30)
        self._socket.connect(("127.0.0.1", int(server.url.rsplit(":", 1)[1])))
        self._protocol.send_request(self._protocol.connect())
        self._flush()
        while not self._protocol.events_received():
            self._protocol.receive_data(self._socket.recv(4096))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def create(self, text: str, **fields: Any) -> None:
        self._protocol.send_text(json.dumps({"type": "response.create", "input": text, **fields}).encode())
        self._flush()

    def wake_up(self) -> Iterator[dict[str, Any]]:
        """All events up to the end of the response or of the connection."""
        while data := self._socket.recv(65536):
            self._protocol.receive_data(data)
            for frame in self._protocol.events_received():
                if isinstance(frame, Frame) and frame.opcode is Opcode.TEXT:
                    event = json.loads(frame.data)
                    yield event
                    if event["type"] in ENDS:
                        return
            self._flush()

    @property
    def close_code(self) -> int | None:
        return self._protocol.close_rcvd and self._protocol.close_rcvd.code

    def _flush(self) -> None:
        for data in self._protocol.data_to_send():
            if data:
                self._socket.sendall(data)


def test_deltas_are_merged_for_who_falls_behind(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a long name of their lane the events are more than the system's own buffers take."""
    monkeypatch.setattr(websocket, "SLOW_S", 0.1)
    server.engine.enqueue(HUGE)
    with Sleeper(server) as sleeper:
        sleeper.create("x", stream_id="a" * 256)
        wait_until(lambda: server.engine.running == 0, timeout_s=60)
        time.sleep(1.0)
        events = list(sleeper.wake_up())
    numbers = [event["sequence_number"] for event in events]
    assert numbers == sorted(set(numbers))
    assert text_of(events) == output_text(events[-1]["response"]) == HUGE
    assert len(events) < len(HUGE) * 0.9


def test_who_reads_nothing_is_closed_and_may_resume(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(websocket, "SEND_TIMEOUT_S", 0.5)
    server.engine.enqueue(HUGE)
    with Sleeper(server) as sleeper, Socket(server) as lively:
        sleeper.create("x")
        for _ in range(20):
            began = time.monotonic()
            lively.ask("quick")
            assert time.monotonic() - began < 2.0
        wait_until(lambda: "took nothing" in caplog.text, timeout_s=60)
        events = list(sleeper.wake_up())
        assert sleeper.close_code == 1013
        lively.send("response.resume", response_id=events[0]["response"]["id"])
        replay = lively.answer()
    assert replay[: len(events)] == events
    assert [event["sequence_number"] for event in replay] == list(range(len(replay)))
    assert text_of(replay) == HUGE
