"""Settings that cannot work are refused before anything is loaded."""

from __future__ import annotations

from typing import Any

import pytest

from engine.config import EngineConfig
from engine.errors import ConfigError


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"block_size": 0}, "block_size"),
        ({"block_size": 7}, "block_size"),
        ({"block_size": 12}, "block_size"),
        ({"block_size": 1_000_000}, "block_size"),
        ({"num_blocks": 0}, "num_blocks"),
        ({"num_blocks": -1}, "num_blocks"),
        ({"num_blocks": True}, "num_blocks"),
        ({"num_swap_blocks": -1}, "num_swap_blocks"),
        ({"max_model_len": 0}, "max_model_len"),
        ({"max_num_seqs": 0}, "max_num_seqs"),
        ({"max_num_batched_tokens": 0}, "max_num_batched_tokens"),
        ({"max_num_batched_tokens": 64, "max_num_seqs": 65}, "max_num_seqs"),
        ({"max_num_waiting": 0}, "max_num_waiting"),
        ({"ageing_s": 0.0}, "ageing_s"),
        ({"dtype": "int3"}, "dtype"),
        ({"preemption": "never"}, "preemption"),
        ({"quantization": "int2"}, "quantization"),
        ({"kv_cache_dtype": "int8"}, "kv_cache_dtype must be one of auto, fp8"),
        ({"model": ""}, "model"),
        ({"num_blocks": 4, "block_size": 16, "max_model_len": 65}, "num_blocks"),
    ],
)
def test_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        EngineConfig(**settings)


def test_a_length_that_just_fits_the_blocks_is_taken() -> None:
    assert EngineConfig(num_blocks=4, block_size=16, max_model_len=64).max_model_len == 64
