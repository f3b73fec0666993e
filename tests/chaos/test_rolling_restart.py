"""Two servers behind the shipped nginx are replaced in turn under load, and no client sees an error.

Who resumes misses nothing and gets nothing twice, and what is simply asked is answered, once. ``make chaos`` runs it
longer.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
from openai import AsyncOpenAI
from websockets.exceptions import ConnectionClosed

from chatsrv.drain import SERVICE_RESTART
from tests.chaos.answer import Answer
from tests.chaos.nginx import Nginx
from tests.chaos.world import World
from tests.chatsrv.conftest import wait_until

SECONDS = float(os.environ.get("CHAOS_SECONDS", "6"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))
NUM_CLIENTS = 4
"""Of each kind."""

DRAIN_S = 1.0
MAX_LONG_WORDS = 150
MAX_SHORT_WORDS = 5
"""The long answers take longer than the servers drain and are handed over; the short ones end in time."""

GIVE_UP_S = 60.0


class Client:
    """Asks one question after the other, over one address, and checks each answer."""

    def __init__(self, url: str, randomness: random.Random) -> None:
        self.url = url
        self.random = randomness
        self.num_resumes = 0
        self._http = httpx.AsyncClient(base_url=url, timeout=GIVE_UP_S)
        self._openai = AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=GIVE_UP_S)

    def words(self, most: int) -> str:
        return " ".join(self.random.choices(["alpha", "beta", "γάμμα", "🦊"], k=self.random.randrange(1, most)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._http.aclose()
        await self._openai.close()

    async def by_socket(self) -> None:
        answer = Answer(self.words(MAX_LONG_WORDS))
        while not answer.is_ended:
            try:
                await answer.follow(self.url.replace("http", "ws", 1) + "/v1/responses")
            except ConnectionClosed as error:
                if error.rcvd is None or error.rcvd.code != SERVICE_RESTART:
                    raise
                self.num_resumes += 1
        answer.check()

    async def by_sse(self) -> None:
        answer = Answer(self.words(MAX_LONG_WORDS))
        body = {"input": answer.text, "temperature": 0, "stream": True}
        await self._read(answer, self._http.build_request("POST", "/v1/responses", json=body))
        while not answer.is_ended:
            self.num_resumes += 1
            query = {"stream": "true", "starting_after": str(answer.position)}
            await self._read(answer, self._http.build_request("GET", f"/v1/responses/{answer.id}", params=query))
        answer.check()

    async def _read(self, answer: Answer, request: httpx.Request) -> None:
        """Up to the end of the answer, or until the server asks to come back."""
        response = await self._http.send(request, stream=True)
        try:
            assert response.status_code == 200, await response.aread()
            async for event in _events(response):
                if event["type"] == "error":
                    assert event["code"] == "server_restarting"
                    return
                answer.events.append(event)
        finally:
            await response.aclose()
        assert answer.is_ended

    async def by_posts(self) -> None:
        """A conversation of a few turns; in the end it has each of them once."""
        conversation = (await self._post("/v1/conversations", {}))["id"]
        told = []
        for _ in range(3):
            text = self.words(MAX_SHORT_WORDS)
            response = await self._post("/v1/responses", {"input": text, "conversation": conversation})
            assert response["status"] == "completed"
            told += [text, f"You said: {text}"]
        items = (await self._http.get(f"/v1/conversations/{conversation}/items?order=asc&limit=100")).json()["data"]
        assert [item["content"][0]["text"] for item in items] == told

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        padding = " " * self.random.choice([0, 100_000])  # nginx keeps the small ones in memory
        response = await self._http.post(path, content=json.dumps(body) + padding)
        assert response.status_code == 200, (response.status_code, response.text)
        answer: dict[str, Any] = response.json()
        return answer

    async def by_openai(self) -> None:
        text = self.words(MAX_SHORT_WORDS)
        response = await self._openai.responses.create(model="fake", input=text)
        assert response.output_text == f"You said: {text}"
        messages: Any = [{"role": "user", "content": text}]
        chunks = await self._openai.chat.completions.create(model="fake", messages=messages, stream=True)
        deltas = [chunk.choices[0].delta.content or "" async for chunk in chunks]
        assert "".join(deltas) == f"You said: {text}"


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


KINDS: list[Callable[[Client], Awaitable[None]]] = [
    Client.by_socket,
    Client.by_sse,
    Client.by_posts,
    Client.by_openai,
]


async def _ask(kind: Callable[[Client], Awaitable[None]], client: Client, stop: asyncio.Event) -> int:
    """How often it was done."""
    count = 0
    while not stop.is_set():
        async with asyncio.timeout(GIVE_UP_S):
            await kind(client)
        count += 1
    return count


async def _roll(world: World, url: str) -> Counter[str]:
    """Replace servers under load; what was done, and how often."""
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(Client(url, random.Random(SEED + number))) for number in range(NUM_CLIENTS)
        ]
        stop = asyncio.Event()
        asking = {asyncio.create_task(_ask(kind, client, stop)): kind for kind in KINDS for client in clients}
        done, end = Counter[str](), time.monotonic() + SECONDS
        while time.monotonic() < end or done["restarts"] < 2 * len(world.ports):
            for port in world.ports:
                await world.replace_server(port, signal.SIGTERM)
                await asyncio.to_thread(wait_until, world.is_ready, 60)
                done["restarts"] += 1
            if any(task.done() for task in asking):
                break
        stop.set()
        await asyncio.gather(*asking)
        for task, kind in asking.items():
            done[kind.__name__] += task.result()
        done["resumes"] = sum(client.num_resumes for client in clients)
        return done


@pytest.mark.timeout(0)
def test_no_client_notices(tmp_path: Path) -> None:
    with (
        closing(World(tmp_path, random.Random(SEED), drain_timeout_s=DRAIN_S)) as world,
        closing(Nginx(tmp_path, world.ports)) as nginx,
    ):
        wait_until(world.is_ready, 60)
        done = asyncio.run(_roll(world, f"http://127.0.0.1:{nginx.port}"))
        print(f"{dict(done)}, seed {SEED}")
        assert done["resumes"] > 0
