"""The server's side of the socket, played by a test: exact events at exact moments."""

from __future__ import annotations

import json
from typing import Any

from playwright.sync_api import Page, WebSocketRoute

USAGE = {"input_tokens": 40, "output_tokens": 10, "total_tokens": 50, "input_tokens_details": {"cached_tokens": 32}}


class ScriptedResponse:
    """One running response: the test says what the model would."""

    def __init__(self, socket: WebSocketRoute, number: int, request: dict[str, Any]) -> None:
        self.request = request
        self._socket = socket
        self._sequence_number = -1
        self._item = {
            "id": f"msg_answer{number}",
            "type": "message",
            "role": "assistant",
            "content": [],
            "parent_id": f"msg_question{number}" if "input" in request else request["parent_id"],
        }
        self.response = {"id": f"resp_{number}", "status": "in_progress"}

    def emit(self, kind: str, **fields: Any) -> None:
        self._sequence_number += 1
        event = {"type": kind, "sequence_number": self._sequence_number, "stream_id": self.request["stream_id"]}
        self._socket.send(json.dumps({**event, **fields}))

    def begin(self) -> ScriptedResponse:
        self.emit("response.created", response=self.response)
        self.emit("response.in_progress", response=self.response)
        self.emit("response.output_item.added", output_index=0, item={**self._item, "status": "in_progress"})
        return self

    def write(self, *deltas: str) -> ScriptedResponse:
        for delta in deltas:
            self.emit("response.output_text.delta", output_index=0, delta=delta)
        return self

    def end(self, status: str = "completed", **fields: Any) -> None:
        self.emit(f"response.{status}", response={**self.response, "status": status, "usage": USAGE, **fields})


class ScriptedServer:
    """Takes the page's socket and keeps what it asks for; HTTP still goes to the real server."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self._socket: WebSocketRoute | None = None

    def attach(self, page: Page) -> None:
        page.route_web_socket("**/v1/responses", self._accept)

    def _accept(self, socket: WebSocketRoute) -> None:
        self._socket = socket
        socket.on_message(lambda text: self.requests.append(json.loads(text)))

    def response(self, page: Page, number: int = 0) -> ScriptedResponse:
        """The ``number``-th response that the page asked for, as soon as it has asked."""
        for _ in range(100):
            creates = [request for request in self.requests if request["type"] == "response.create"]
            if len(creates) > number:
                assert self._socket is not None
                return ScriptedResponse(self._socket, number, creates[number])
            page.wait_for_timeout(20)
        raise AssertionError(f"the page asked for fewer than {number + 1} responses: {self.requests}")

    def drop(self) -> None:
        """The network goes away."""
        assert self._socket is not None
        self._socket.close(code=1012)
