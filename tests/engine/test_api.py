"""Sampling parameters out of range are refused with the field's name; outputs merge without loss."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from engine.api import ModelInfo, Output, SamplingParams, Usage, merge_outputs
from engine.errors import InvalidRequest

MODEL = ModelInfo("demo", "LlamaForCausalLM", "f00d", 49152, 2048, frozenset({0}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("max_tokens", value) for value in (0, -1, 1.5, "10", True)),
        *(("min_tokens", value) for value in (-1, None)),
        *(("temperature", value) for value in (-1, 2.01, float("nan"), float("inf"), 1e308, "0", None)),
        *(("top_p", value) for value in (0, -0.1, 1.1, float("nan"))),
        *(("min_p", value) for value in (-0.1, 1.1)),
        *(("top_k", value) for value in (-1, 2.0)),
        *(("n", value) for value in (0, 65, True)),
        *(("seed", value) for value in (2**64, 1.0)),
        *(("logprobs", value) for value in (-1, 21)),
        *(("stop", value) for value in (("",), ("a\ud83d",), ("x" * 1025,), ("a",) * 17, "abc")),
        *(("logit_bias", value) for value in ({"abc": 1}, {1: 1e9}, {1: float("nan")})),
        *(("repetition_penalty", value) for value in (0, -1, 1e-38)),
        ("early_stopping", "sometimes"),
        ("stop_token_ids", ("a",)),
    ],
)
def test_refused(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(**{field: value})
    assert caught.value.field == field
    assert field in str(caught.value)


def test_combinations() -> None:
    with pytest.raises(InvalidRequest, match="best_of"):
        SamplingParams(n=3, best_of=2)
    with pytest.raises(InvalidRequest, match="min_tokens"):
        SamplingParams(min_tokens=5, max_tokens=4)
    with pytest.raises(InvalidRequest, match="logprobs"):
        SamplingParams(use_beam_search=True, logprobs=1)


@pytest.mark.parametrize("temperature", [0, 1e-6, 1e-38, 5e-324])
def test_tiny_temperatures_are_greedy(temperature: float) -> None:
    assert SamplingParams(temperature=temperature).is_greedy


@pytest.mark.parametrize("params", [{"logit_bias": {49152: 5}}, {"logit_bias": {-1: 5}}, {"stop_token_ids": (49152,)}])
def test_token_ids_outside_the_vocabulary(params: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="49151"):
        SamplingParams(**params).check_token_ids(MODEL)


@pytest.mark.parametrize("stops", [range(10), range(1, 10)])
def test_something_must_be_left_to_draw(stops: range) -> None:
    """Before ``min_tokens`` no stop token may be drawn, nor an end-of-sequence token."""
    tiny = replace(MODEL, vocab_size=10)
    SamplingParams(stop_token_ids=tuple(stops)).check_token_ids(tiny)
    SamplingParams(stop_token_ids=tuple(range(2, 10)), min_tokens=1).check_token_ids(tiny)
    with pytest.raises(InvalidRequest, match="no token to draw"):
        SamplingParams(stop_token_ids=tuple(stops), min_tokens=1).check_token_ids(tiny)


def test_merging_keeps_order_and_the_last_word() -> None:
    first = Output(index=0, token_ids=(1,), text="a", finish_reason=None, usage=Usage(3, 1, 0), prompt_logprobs=(None,))
    last = Output(index=0, token_ids=(2,), text="b", finish_reason="stop", usage=Usage(3, 2, 0), stop_reason="x")
    merged = merge_outputs([first, last])
    assert (merged.token_ids, merged.text, merged.finish_reason) == ((1, 2), "ab", "stop")
    assert (merged.usage, merged.stop_reason, merged.prompt_logprobs) == (Usage(3, 2, 0), "x", (None,))
