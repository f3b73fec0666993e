"""How a request to the engine ended is told once, whatever came of it."""

from __future__ import annotations

import pytest

from chatsrv.counters import RESPONSES
from chatsrv.observation import Observation
from engine import FinishReason, Output, Usage


def _count(outcome: str) -> float:
    return next(s.value for m in RESPONSES.collect() for s in m.samples if s.labels["outcome"] == outcome)


def _output(reason: FinishReason | None) -> Output:
    return Output(0, (1,), "x", reason, Usage(5, 1, 0))


@pytest.mark.parametrize(
    ("reasons", "fails", "outcome"),
    [([], False, "aborted"), ([None], False, "aborted"), ([None, "stop"], False, "stop"), ([None], True, "failed")],
)
def test_the_outcome_is_counted(reasons: list[FinishReason | None], fails: bool, outcome: str) -> None:
    before = _count(outcome)
    observation = Observation("resp_1", "fake", "default", ["x"])
    for reason in reasons:
        observation.note(_output(reason))
    if fails:
        observation.fail()
    observation.end()
    assert _count(outcome) == before + 1
