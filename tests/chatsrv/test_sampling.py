"""Sampling fields of the wire become the engine's; what cannot be is refused by the name that the client used."""

from __future__ import annotations

from typing import Any

import pytest

from chatsrv.errors import InvalidField
from chatsrv.sampling import check_max_tokens, response_params, sampling_params
from chatsrv.wire.create import CreateResponse, Sampling
from engine import ModelInfo, SamplingParams

MODEL = ModelInfo("m", "LlamaForCausalLM", "f00d", vocab_size=1000, max_model_len=512, eos_token_ids=frozenset({2}))


def test_without_fields_the_engine_s_defaults_hold() -> None:
    assert sampling_params(Sampling(), MODEL) == SamplingParams()


def test_every_field_arrives() -> None:
    request = Sampling(
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.05,
        seed=7,
        stop=["\n", "END"],
        stop_token_ids=[5],
        min_tokens=2,
        ignore_eos=True,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        logit_bias={"17": -5.0},
    )
    assert sampling_params(request, MODEL, n=3) == SamplingParams(
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.05,
        seed=7,
        stop=("\n", "END"),
        stop_token_ids=(5,),
        min_tokens=2,
        ignore_eos=True,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        logit_bias={17: -5.0},
        n=3,
    )


def test_one_stop_string_may_stand_alone() -> None:
    assert sampling_params(Sampling(stop="END"), MODEL).stop == ("END",)


@pytest.mark.parametrize(
    ("fields", "param", "limit"),
    [
        ({"temperature": -1.0}, "temperature", "from 0"),
        ({"temperature": 2.5}, "temperature", "to 2, not 2.5"),
        ({"top_p": 0.0}, "top_p", "above 0"),
        ({"top_p": 1.5}, "top_p", "to 1"),
        ({"top_k": -1}, "top_k", "at least 0"),
        ({"seed": 2**70}, "seed", "to 18446744073709551615"),
        ({"stop": [""]}, "stop", "non-empty"),
        ({"stop_token_ids": [1000]}, "stop_token_ids", "0 to 999"),
        ({"logit_bias": {"x": 1.0}}, "logit_bias", "token ids"),
        ({"logit_bias": {"1000": 1.0}}, "logit_bias", "0 to 999"),
        ({"logit_bias": {"1": 101.0}}, "logit_bias", "-100 to 100"),
        ({"max_output_tokens": 513}, "max_output_tokens", "at most 512"),
        ({"max_output_tokens": 1, "min_tokens": 2}, "min_tokens", "must not exceed max_output_tokens, 1"),
    ],
)
def test_a_bad_value_names_its_field_and_the_limit(fields: dict[str, Any], param: str, limit: str) -> None:
    with pytest.raises(InvalidField) as caught:
        response_params(CreateResponse(**fields), MODEL)
    assert caught.value.param == param
    assert limit in caught.value.message
    assert caught.value.message.startswith(param)


def test_engine_fields_are_told_by_their_name_on_the_wire() -> None:
    with pytest.raises(InvalidField, match="max_output_tokens must be at least 1") as caught:
        response_params(CreateResponse(max_output_tokens=0), MODEL)
    assert caught.value.param == "max_output_tokens"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"include": ["message.output_text.logprobs"]}, 0),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 4}, 4),
        ({"top_logprobs": 4}, 4),
    ],
)
def test_logprobs_are_computed_only_when_asked_for(fields: dict[str, Any], expected: int | None) -> None:
    assert response_params(CreateResponse(**fields), MODEL).logprobs == expected


def test_warming_the_cache_draws_a_single_token() -> None:
    assert response_params(CreateResponse(generate=False, max_output_tokens=100), MODEL).max_tokens == 1


def test_the_model_s_length_itself_may_be_asked_for() -> None:
    check_max_tokens("max_tokens", 512, MODEL)
    check_max_tokens("max_tokens", None, MODEL)
