"""``chatsrv chat``: the WebSocket protocol from a terminal. Ctrl-C stops the answer, ``/quit`` the program."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from chatsrv.settings import PREFIX

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What a terminal would obey instead of showing, wherever it comes from."""

_MODELS_TIMEOUT_S = 10

_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


def main(arguments: Sequence[str]) -> int:
    """Chat until the person leaves; returns the exit status."""
    host, port = os.environ.get(f"{PREFIX}HOST", "127.0.0.1"), os.environ.get(f"{PREFIX}PORT", "8000")
    parser = argparse.ArgumentParser(prog="chatsrv chat", description="Talk to a running server from this terminal.")
    parser.add_argument("--url", default=f"http://{host}:{port}", help="of the server [%(default)s]")
    parser.add_argument("--system", metavar="TEXT", dest="instructions", help="system prompt")
    parser.add_argument("--temperature", type=float, metavar="NUMBER", help="0 always takes the likeliest token")
    parser.add_argument("--max-tokens", type=int, metavar="INT", dest="max_output_tokens", help="limit of an answer")
    parser.add_argument("--conversation", metavar="ID", help="go on with this conversation")
    parser.add_argument("--key-file", type=Path, metavar="FILE", help="file that holds your API key")
    fields = vars(parser.parse_args(arguments))
    url, key_file = fields.pop("url"), fields.pop("key_file")
    try:
        key = key_file.read_text().strip() if key_file else ""
    except OSError as error:
        print(f"chatsrv: the key file {key_file} cannot be read: {error.strerror}", file=sys.stderr)
        return 2
    return asyncio.run(Terminal(url, fields, key).run())


class Terminal:
    """One conversation between a person and the server.

    Args:
        url: of the server, ``http://host:port``.
        fields: of every ``response.create``; None where not given.
        key: an API key; empty for a server that asks for none.
    """

    def __init__(self, url: str, fields: dict[str, Any], key: str = "") -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._fields = {name: value for name, value in fields.items() if value is not None}
        self._response_id: str | None = None
        self._is_answering = False
        self._stopping: asyncio.Future[None] | None = None

    async def run(self) -> int:
        """Until the person leaves; returns the exit status."""
        address = urlsplit(self._url)._replace(path="/v1/responses").geturl().replace("http", "ws", 1)
        try:
            async with connect(address, additional_headers=self._headers, max_size=None, ping_timeout=None) as socket:
                self._fields = await asyncio.to_thread(self._recommended) | self._fields
                self._say(f"connected to {self._url}; Ctrl-C stops an answer, Ctrl-D or /quit leaves\n")
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._on_interrupt, socket)
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

    def _recommended(self) -> dict[str, Any]:
        """How the server would sample in a conversation."""
        request = Request(f"{self._url}/v1/models", headers=self._headers)  # noqa: S310 - the person names the server
        with urlopen(request, timeout=_MODELS_TIMEOUT_S) as answer:  # noqa: S310
            sampling: dict[str, Any] = json.load(answer)["data"][0]["sampling"]
            return sampling

    async def _read(self) -> str | None:
        """A line from the person; None at the end. In a thread, for the socket's pings go on meanwhile."""
        self._say("\n> ")
        line = await asyncio.to_thread(sys.stdin.readline)
        return None if not line or line.strip() == "/quit" else line.rstrip("\n")

    async def _turn(self, socket: ClientConnection, line: str) -> None:
        request = {"type": "response.create", "input": line, **self._fields}
        if self._response_id is not None:
            request["previous_response_id"] = self._response_id
        await socket.send(json.dumps(request))
        self._is_answering = True
        await self._show(socket)
        self._is_answering = False

    def _on_interrupt(self, socket: ClientConnection) -> None:
        """Ctrl-C is for the answer; where there is none it only says how to leave."""
        if not self._is_answering:
            self._say("\n(Ctrl-D or /quit leaves)\n> ")
        elif self._response_id is not None:
            cancel = {"type": "response.cancel", "response_id": self._response_id}
            self._stopping = asyncio.ensure_future(socket.send(json.dumps(cancel)))

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

    @staticmethod
    def _say(text: str) -> None:
        print(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", text), end="", flush=True)


def _remark(response: dict[str, Any]) -> str:
    """What a person should know of how an answer ended."""
    if response["status"] == "failed":
        return f" [{response['error']['message']}]"
    remarks = {"cancelled": " [stopped]", "incomplete": " [cut: length limit]"}
    return remarks.get(response["status"], "")
