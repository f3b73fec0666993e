"""Chat load: N sessions at once, each of T turns, each turn sent when the last one has ended.

Over SSE it speaks OpenAI chat completions and resends the whole history each turn, as any chat client does, so that any
server can be measured; over a WebSocket it speaks the Responses API and names the previous response instead. Both send
the same words.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import httpx
from websockets.asyncio.client import ClientConnection, connect

VOCABULARY = (
    "river stone market window garden signal paper engine winter letter bridge copper "
    "harbor music forest candle valley machine silver thunder"
)
WORDS = VOCABULARY.split()
TIME_LIMIT_S = 600


@dataclass(frozen=True, slots=True)
class Load:
    """What every session does."""

    model: str
    num_turns: int
    max_tokens: int
    num_system_words: int
    num_user_words: int
    ignore_eos: bool
    seed: int
    tier: str = "default"

    def system(self) -> str:
        words = " ".join(WORDS[i % len(WORDS)] for i in range(self.num_system_words))
        return f"You are a helpful assistant. {words}"

    def questions(self, session: int) -> list[str]:
        draw = random.Random(self.seed * 1000 + session)
        return [
            f"Session {session} turn {turn}: write a long story about "
            + " ".join(draw.choice(WORDS) for _ in range(self.num_user_words))
            for turn in range(self.num_turns)
        ]


@dataclass(slots=True)
class Answer:
    """One turn as its client saw it."""

    started: float = field(default_factory=time.perf_counter)
    stamps: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    num_prompt: int = 0
    num_completion: int = 0
    num_cached: int = 0

    def take(self, text: str) -> None:
        if text:
            self.stamps.append(time.perf_counter())
            self.texts.append(text)

    @property
    def ttft_s(self) -> float:
        return (self.stamps[0] if self.stamps else time.perf_counter()) - self.started

    @property
    def gaps_s(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.stamps, self.stamps[1:], strict=False)]


class Session(Protocol):
    """One conversation with the server."""

    async def ask(self, question: str) -> Answer: ...


class SseSession:
    """Chat completions over SSE: the client keeps the history."""

    def __init__(self, client: httpx.AsyncClient, load: Load) -> None:
        self._client = client
        self._load = load
        self._messages = [{"role": "system", "content": load.system()}]

    async def ask(self, question: str) -> Answer:
        self._messages.append({"role": "user", "content": question})
        answer = Answer()
        async with self._client.stream("POST", "chat/completions", json=self._body()) as reply:
            if reply.status_code != httpx.codes.OK:
                raise RuntimeError(f"{reply.status_code} {(await reply.aread())[:300]!r}")
            async for line in reply.aiter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    self._take(json.loads(line[6:]), answer)
        answer.num_completion = answer.num_completion or len(answer.stamps)  # not every server tells the usage
        self._messages.append({"role": "assistant", "content": "".join(answer.texts)})
        return answer

    def _body(self) -> dict[str, Any]:
        body = {
            "model": self._load.model,
            "messages": self._messages,
            "max_tokens": self._load.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        return {**body, "ignore_eos": True} if self._load.ignore_eos else body

    @staticmethod
    def _take(chunk: dict[str, Any], answer: Answer) -> None:
        for choice in chunk.get("choices", []):
            answer.take(choice.get("delta", {}).get("content") or "")
        if usage := chunk.get("usage"):
            answer.num_prompt = usage["prompt_tokens"]
            answer.num_completion = usage["completion_tokens"]
            answer.num_cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


class SocketSession:
    """The Responses API over a WebSocket: the server keeps the history."""

    def __init__(self, socket: ClientConnection, load: Load) -> None:
        self._socket = socket
        self._load = load
        self._previous: str | None = None

    async def ask(self, question: str, answer: Answer | None = None) -> Answer:
        """Fills the given answer, which others may watch, or a new one."""
        answer = answer or Answer()
        await self._socket.send(json.dumps(self._create(question)))
        while not self._take(json.loads(await self._socket.recv()), answer):
            pass
        return answer

    def _create(self, question: str) -> dict[str, Any]:
        messages = [{"role": "user", "content": question}]
        if self._previous is None:
            messages.insert(0, {"role": "system", "content": self._load.system()})
        return {
            "type": "response.create",
            "input": messages,
            "previous_response_id": self._previous,
            "max_output_tokens": self._load.max_tokens,
            "temperature": 0,
            "ignore_eos": self._load.ignore_eos,
            "service_tier": self._load.tier,
        }

    def _take(self, event: dict[str, Any], answer: Answer) -> bool:
        """Account for one event; whether it was the last of its response."""
        match event["type"]:
            case "response.output_text.delta":
                answer.take(event["delta"])
            case "response.completed" | "response.incomplete":
                usage = event["response"]["usage"]
                answer.num_prompt = usage["input_tokens"]
                answer.num_completion = usage["output_tokens"]
                answer.num_cached = usage["input_tokens_details"]["cached_tokens"]
                self._previous = event["response"]["id"]
                return True
            case "error" | "response.failed" | "response.cancelled":
                raise RuntimeError(json.dumps(event))
        return False


Transport = Literal["socket", "sse"]


@dataclass(frozen=True, slots=True)
class Target:
    """A server to put under load: its ``…/v1``, how to speak to it, and the API key if it wants one."""

    base: str
    transport: Transport = "socket"
    key: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    @property
    def socket_url(self) -> str:
        return self.base.replace("http", "ws", 1) + "/responses"


@asynccontextmanager
async def open_session(target: Target, load: Load) -> AsyncIterator[Session]:
    """A conversation over a fresh connection."""
    if target.transport == "sse":
        async with httpx.AsyncClient(base_url=target.base, headers=target.headers, timeout=TIME_LIMIT_S) as client:
            yield SseSession(client, load)
    else:
        async with open_socket(target) as socket:
            yield SocketSession(socket, load)


def open_socket(target: Target) -> connect:
    return connect(target.socket_url, additional_headers=target.headers, proxy=None, ping_timeout=None)


async def converse(number: int, target: Target, load: Load) -> list[Answer]:
    """One session from its first turn to its last."""
    async with open_session(target, load) as session:
        return [await session.ask(question) for question in load.questions(number)]


async def converse_all(num_sessions: int, target: Target, load: Load) -> dict[str, object]:
    """So many sessions at once; the report."""
    start = time.perf_counter()
    sessions = await asyncio.gather(*(converse(number, target, load) for number in range(num_sessions)))
    return report(sessions, time.perf_counter() - start)


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values) or [0.0]
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def report(sessions: Sequence[Sequence[Answer]], wall_s: float) -> dict[str, object]:
    """The line of figures, with the keys of other chat load generators' lines."""
    answers = [answer for turns in sessions for answer in turns]
    completion = sum(answer.num_completion for answer in answers)
    first = [answer.ttft_s for answer in answers]
    gaps = [gap for answer in answers for gap in answer.gaps_s]
    by_turn = [statistics.median(answer.ttft_s for answer in turn) for turn in zip(*sessions, strict=True)]
    return {
        "sessions": len(sessions),
        "turns": len(by_turn),
        "wall_s": round(wall_s, 2),
        "out_tok_s": round(completion / wall_s, 1),
        "completion": completion,
        "prompt": sum(answer.num_prompt for answer in answers),
        "cached": sum(answer.num_cached for answer in answers),
        "ttft_p50": round(percentile(first, 0.5), 3),
        "ttft_p95": round(percentile(first, 0.95), 3),
        "ttft_by_turn": [round(ttft_s, 3) for ttft_s in by_turn],
        "itl_p50_ms": round(percentile(gaps, 0.5) * 1e3, 1),
        "itl_p99_ms": round(percentile(gaps, 0.99) * 1e3, 1),
    }
