"""The memory measurement in small: its parts, and a line for each tenth of the requests."""

from __future__ import annotations

import json

import pytest

from bench.resident import measure, resident_bytes, torch_bytes


async def test_parts_and_growth_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    await measure(80, base_bytes=torch_bytes())
    parts, *growth = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    needed = parts["torch"] + parts["weights"]
    assert 100 < parts["torch"] < resident_bytes() / 1e6
    assert parts["ratio"] == pytest.approx(parts["resident"] / needed, abs=0.01)
    assert 50 < parts["weights"] < 800
    assert [line["requests"] for line in growth] == list(range(8, 81, 8))
    assert all(line["resident"] > parts["weights"] for line in growth)
    assert growth[-1]["ratio"] == pytest.approx(growth[-1]["resident"] / (needed + parts["pool"]), abs=0.01)
