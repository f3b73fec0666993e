"""The chat load generator against scripted servers: what it sends, what it counts, and when it gives up."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from bench.chat_load import Answer, Load, SseSession, Target, converse, percentile, report
from tests.bench.scripted_server import ScriptedSocketServer, scripted_server

LOAD = Load(model="m", num_turns=2, max_tokens=8, num_system_words=3, num_user_words=2, ignore_eos=True, seed=1)


def test_both_transports_ask_the_same_questions() -> None:
    assert LOAD.system() == "You are a helpful assistant. river stone market"
    first, second = LOAD.questions(0)
    assert first.startswith("Session 0 turn 0: ")
    assert second.startswith("Session 0 turn 1: ")
    assert LOAD.questions(0) == [first, second] != LOAD.questions(1)


def _answer(started: float, stamps: list[float], completion: int = 4, cached: int = 0) -> Answer:
    return Answer(started=started, stamps=stamps, num_prompt=10, num_completion=completion, num_cached=cached)


def test_the_report_adds_tokens_and_separates_turns() -> None:
    sessions = [
        [_answer(0.0, [0.1, 0.2, 0.4]), _answer(1.0, [1.3], cached=8)],
        [_answer(0.0, [0.3, 0.4]), _answer(1.0, [1.5], cached=6)],
    ]
    line = report(sessions, wall_s=2.0)
    assert line["completion"] == 16
    assert line["prompt"] == 40
    assert line["cached"] == 14
    assert line["out_tok_s"] == 8.0
    assert line["ttft_by_turn"] == [0.2, 0.4]
    assert line["ttft_p50"] == 0.3
    assert line["ttft_p95"] == 0.5
    assert line["itl_p50_ms"] == 100.0
    assert line["itl_p99_ms"] == 200.0


def test_percentiles_of_nothing_are_zero() -> None:
    assert percentile([], 0.5) == 0.0


@pytest.fixture
async def scripted() -> AsyncIterator[tuple[ScriptedSocketServer, Target]]:
    async with scripted_server(ScriptedSocketServer()) as both:
        yield both


async def test_a_socket_session_continues_from_its_previous_response(
    scripted: tuple[ScriptedSocketServer, Target],
) -> None:
    script, target = scripted
    answers = await converse(0, target, LOAD)
    assert ["".join(answer.texts) for answer in answers] == ["Hello there"] * 2
    assert [answer.num_cached for answer in answers] == [16, 16]
    first, second = script.received
    assert [message["role"] for message in first["input"]] == ["system", "user"]
    assert [message["role"] for message in second["input"]] == ["user"]
    assert (first["previous_response_id"], second["previous_response_id"]) == (None, "resp_1")
    assert first["max_output_tokens"] == LOAD.max_tokens


async def test_an_error_event_ends_the_measurement(scripted: tuple[ScriptedSocketServer, Target]) -> None:
    script, target = scripted
    script.refuse = True
    with pytest.raises(RuntimeError, match="queue_full"):
        await converse(0, target, LOAD)


def _sse(*chunks: object) -> bytes:
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


async def test_an_sse_session_resends_its_history() -> None:
    bodies: list[dict[str, Any]] = []

    def reply(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        delta = {"choices": [{"delta": {"content": "Yes."}}]}
        usage = {"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": None}
        return httpx.Response(200, content=_sse({"choices": [{"delta": {}}]}, delta, {"choices": [], "usage": usage}))

    async with httpx.AsyncClient(base_url="http://test/v1", transport=httpx.MockTransport(reply)) as client:
        session = SseSession(client, LOAD)
        answers = [await session.ask("One?"), await session.ask("Two?")]
    assert [(answer.num_prompt, answer.num_completion, answer.num_cached) for answer in answers] == [(9, 2, 0)] * 2
    roles = [message["role"] for message in bodies[1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert bodies[1]["ignore_eos"] is True


async def test_an_http_error_ends_the_measurement() -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(503, text="loading"))
    async with httpx.AsyncClient(base_url="http://test/v1", transport=transport) as client:
        with pytest.raises(RuntimeError, match="503 b'loading'"):
            await SseSession(client, LOAD).ask("One?")
