"""Later turns of conversations and priority requests, measured on a server that follows a script."""

from __future__ import annotations

import json

import pytest

from bench import history, priority
from tests.bench.scripted_server import ScriptedSocketServer, scripted_server


async def test_each_pair_of_history_and_new_words_gives_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    async with scripted_server(ScriptedSocketServer()) as (script, target):
        await history.measure(target, [30, 60], [5], num_rounds=2)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["history"], line["new"]) for line in lines] == [(16, 4), (16, 4)]
    asked = [len(one["input"][-1]["content"].split()) for one in script.received]
    assert asked == [20, 20, *[30, 5, 60, 5] * 2]
    assert [one["previous_response_id"] is not None for one in script.received] == [False, True] * 5


async def test_priority_is_measured_with_and_without_streams(capsys: pytest.CaptureFixture[str]) -> None:
    async with scripted_server(ScriptedSocketServer()) as (script, target):
        await priority.measure(target, num_streams=3, num_rounds=2)
    line = json.loads(capsys.readouterr().out)
    assert line["share_of_goal"] > 0
    tiers = [one["service_tier"] for one in script.received]
    assert tiers.count("flex") == 3
    assert tiers[:5] == ["priority"] * 5
    assert tiers[-2:] == ["priority"] * 2
