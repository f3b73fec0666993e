"""What a client has seen of an answer, and whether that is all of it, once and in order."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from typing import Any

from websockets.asyncio.client import connect

from tests.chatsrv.sockets import ENDS, text_of

SILENCE_S = 15.0
"""A client that hears nothing for so long comes back on another socket; a dead server's answers rest for 8 s."""


class Answer:
    """What one client has seen of one response, over all of its sockets."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.events: list[dict[str, Any]] = []

    async def follow(self, url: str, expected_errors: Collection[str] = ()) -> None:
        """Ask, or resume, on one more socket, until the answer has ended or an error came; raises when it breaks."""
        async with connect(url, max_queue=None, open_timeout=5, close_timeout=0.1) as socket:
            await socket.send(json.dumps(self._request()))
            while not self.is_ended:
                event = json.loads(await asyncio.wait_for(socket.recv(), SILENCE_S))
                if event["type"] == "error":
                    assert event["error"]["code"] in expected_errors, event
                    if event["error"]["code"] == "response_not_found":
                        self.events.clear()  # it died before anything of it was stored
                    return
                self.events.append(event)

    def _request(self) -> dict[str, Any]:
        if not self.events:
            return {"type": "response.create", "input": self.text, "temperature": 0}
        return {"type": "response.resume", "response_id": self.id, "starting_after": self.position}

    @property
    def id(self) -> str:
        response_id: str = self.events[0]["response"]["id"]
        return response_id

    @property
    def position(self) -> int:
        """Number of the last event that came."""
        return len(self.events) - 1

    @property
    def is_ended(self) -> bool:
        return bool(self.events) and self.events[-1]["type"] in ENDS

    def check(self) -> None:
        assert [event["sequence_number"] for event in self.events] == list(range(len(self.events)))
        assert [event["type"] for event in self.events if event["type"] in ENDS] == ["response.completed"]
        assert text_of(self.events) == f"You said: {self.text}"
        assert self.events[-1]["response"]["output"][0]["content"][0]["text"] == f"You said: {self.text}"
