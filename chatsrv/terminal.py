"""``chatsrv chat``: the WebSocket protocol from a terminal. Ctrl-C stops the answer, ``/quit`` the program."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Any, TextIO
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


class Terminal:
    """One conversation between a person and the server.

    Args:
        url: of the server, ``http://host:port``.
        fields: of every ``response.create``; None where not given.
        conversation: to go on with; None lets the first answer begin one.
    """

    def __init__(
        self, url: str, fields: dict[str, Any], conversation: str | None, source: TextIO = sys.stdin,
        sink: TextIO = sys.stdout,
    ) -> None:  # fmt: skip
        self._url = url
        self._fields = {name: value for name, value in fields.items() if value is not None}
        if conversation is not None:
            self._fields["conversation"] = conversation
        self._source = source
        self._sink = sink
        self._response_id: str | None = None

    async def run(self) -> int:
        """Until the person leaves; returns the exit status."""
        address = urlsplit(self._url)._replace(path="/v1/responses").geturl().replace("http", "ws", 1)
        try:
            async with connect(address, max_size=None, ping_timeout=None) as socket:
                self._say(f"connected to {self._url}; Ctrl-C stops an answer, Ctrl-D or /quit leaves\n")
                while (line := await self._read()) is not None:
                    if line.strip():
                        await self._turn(socket, line)
        except ConnectionClosed as error:
            self._say(f"\nthe server closed the connection: {error}\n")
            return 1
        except (OSError, WebSocketException) as error:
            self._say(f"cannot talk to {self._url}: {error}\n")
            return 1
        return 0

    async def _read(self) -> str | None:
        """A line from the person; None at the end. In a thread, for the socket's pings go on meanwhile."""
        self._say("\n> ")
        line = await asyncio.to_thread(self._source.readline)
        return None if not line or line.strip() == "/quit" else line.rstrip("\n")

    async def _turn(self, socket: ClientConnection, line: str) -> None:
        request = {"type": "response.create", "input": line, **self._fields}
        if self._response_id is not None:
            request["previous_response_id"] = self._response_id
        await socket.send(json.dumps(request))
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, lambda: asyncio.ensure_future(self._stop(socket)))
        try:
            await self._show(socket)
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    async def _stop(self, socket: ClientConnection) -> None:
        await socket.send(json.dumps({"type": "response.cancel", "response_id": self._response_id}))

    async def _show(self, socket: ClientConnection) -> None:
        async for frame in socket:
            event = json.loads(frame)
            kind = event["type"]
            if kind == "response.created":
                self._response_id = event["response"]["id"]
            elif kind == "response.output_text.delta":
                self._say(event["delta"])
            elif kind == "error":
                self._say(f"[{event['error']['message']}]")
                return
            elif kind in _ENDS:
                self._say(_remark(event["response"]) + "\n")
                return

    def _say(self, text: str) -> None:
        self._sink.write(text)
        self._sink.flush()


def _remark(response: dict[str, Any]) -> str:
    """What a person should know of how an answer ended."""
    if response["status"] == "failed":
        return f" [{response['error']['message']}]"
    remarks = {"cancelled": " [stopped]", "incomplete": " [cut: length limit]"}
    return remarks.get(response["status"], "")
