"""A raw client of the WebSocket protocol, for what the official one would not send."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Any, Protocol, Self

from websockets.sync.client import ClientConnection, connect

ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "error")
TIMEOUT_S = 60.0


class Served(Protocol):
    @property
    def ws_url(self) -> str: ...


class Socket:
    def __init__(self, server: Served, **options: Any) -> None:
        # An unbounded queue: with a full one, this client does not see the answer to its close frame.
        self._context = connect(server.ws_url, **({"max_queue": None} | options))
        self.connection: ClientConnection

    def __enter__(self) -> Self:
        self.connection = self._context.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._context.__exit__(kind, error, trace)

    def send(self, kind: str, **fields: Any) -> None:
        self.connection.send(json.dumps({"type": kind, **fields}))

    def create(self, text: str, **fields: Any) -> None:
        self.send("response.create", input=text, **fields)

    def recv(self) -> dict[str, Any]:
        event: dict[str, Any] = json.loads(self.connection.recv(timeout=TIMEOUT_S))
        return event

    def until(self, *kinds: str) -> list[dict[str, Any]]:
        """Events up to the first of these types."""
        events = [self.recv()]
        while events[-1]["type"] not in kinds:
            events.append(self.recv())
        return events

    def answer(self) -> list[dict[str, Any]]:
        """Events up to the end of a response."""
        return self.until(*ENDS)

    def ask(self, text: str, **fields: Any) -> dict[str, Any]:
        """The final response to a question."""
        self.create(text, **fields)
        response: dict[str, Any] = self.answer()[-1]["response"]
        return response


def text_of(events: list[dict[str, Any]]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")


def output_text(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] for part in item["content"])
