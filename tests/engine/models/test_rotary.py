"""Rotary angles against those of transformers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from engine.errors import ModelLoadError
from engine.models.rotary import Rotary

CPU = torch.device("cpu")
POSITIONS = torch.tensor([0, 1, 5, 63, 64, 100])

ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    "llama3": {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
}


def config(rope: dict[str, Any]) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=64, num_attention_heads=4, max_position_embeddings=64, rope_parameters={"rope_theta": 500.0, **rope}
    )


def by_transformers(rope: dict[str, Any], positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """[T, R / 2] each; transformers writes every angle twice."""
    cos, sin = LlamaRotaryEmbedding(config(rope))(torch.zeros(1), positions[None])
    half = cos.shape[-1] // 2
    return cos[0, :, :half], sin[0, :, :half]


@pytest.mark.parametrize("name", ROPES)
def test_angles_are_those_of_transformers(name: str) -> None:
    cos, sin = Rotary(config(ROPES[name]), 64, CPU)(POSITIONS)
    expected_cos, expected_sin = by_transformers(ROPES[name], POSITIONS)
    assert (cos.dtype, cos.shape) == (torch.float32, (6, 8))
    assert torch.equal(cos, expected_cos)
    assert torch.equal(sin, expected_sin)


def test_dynamic_angles_are_those_of_a_sequence_that_ends_there() -> None:
    rope = {"rope_type": "dynamic", "factor": 2.0}
    cos, sin = Rotary(config(rope), 64, CPU)(POSITIONS)
    for index, position in enumerate(POSITIONS):
        expected_cos, expected_sin = by_transformers(rope, position[None])
        torch.testing.assert_close(cos[index], expected_cos[0], rtol=0, atol=1e-5)
        torch.testing.assert_close(sin[index], expected_sin[0], rtol=0, atol=1e-5)


def test_an_unknown_type_is_refused_by_name() -> None:
    unknown = config({"rope_type": "default"})
    unknown.rope_parameters["rope_type"] = "spiral"
    with pytest.raises(ModelLoadError, match="rope_type 'spiral'"):
        Rotary(unknown, 64, CPU)
