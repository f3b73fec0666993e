"""A server of the WebSocket protocol that follows a script."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

from bench.chat_load import Target


class ScriptedSocketServer:
    """Answers each ``response.create`` with two deltas and the usage of a response named by its turn."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.refuse = False

    async def __call__(self, socket: ServerConnection) -> None:
        async for frame in socket:
            self.received.append(json.loads(frame))
            for event in self._events():
                await socket.send(json.dumps(event))

    def _events(self) -> list[dict[str, Any]]:
        if self.refuse:
            return [{"type": "error", "status": 429, "error": {"code": "queue_full"}}]
        usage = {"input_tokens": 20, "output_tokens": 8, "input_tokens_details": {"cached_tokens": 16}}
        return [
            {"type": "response.created", "response": {}},
            {"type": "response.output_text.delta", "delta": "Hello"},
            {"type": "response.output_text.delta", "delta": " there"},
            {"type": "response.completed", "response": {"id": f"resp_{len(self.received)}", "usage": usage}},
        ]


@asynccontextmanager
async def scripted_server(script: ScriptedSocketServer) -> AsyncIterator[tuple[ScriptedSocketServer, Target]]:
    async with serve(script, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield script, Target(f"http://127.0.0.1:{port}/v1")
