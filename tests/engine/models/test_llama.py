"""Each architecture of the lean family, token for token against transformers in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine.config import PreemptionMode
from engine.errors import ModelLoadError
from engine.models.llama import LlamaModel
from tests.engine.models.in_engine import check_in_engine
from tests.engine.models.tiny import Rows, generate_with_transformers, load_tiny, prompts, save_tiny

PREEMPTION_MODES: tuple[PreemptionMode, ...] = ("swap", "recompute")
NUM_NEW = 24
LENGTHS = (1, 7, 8, 40)

LONG_FACTORS = {"short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.5, 2.0, 3.0, 4.0]}

ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, biases, separate head": (
        "llama",
        {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": False},
    ),
    "llama, tied head, wide heads": ("llama", {"tie_word_embeddings": True, "head_dim": 16}),
    "llama 3": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "linear rope": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "yarn rope": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "mistral, window": ("mistral", {"sliding_window": 9}),
    "mistral, no window": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {}),
    "qwen2, window in the upper layers": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "smollm3": ("smollm3", {"no_rope_layer_interval": 2}),
    "olmo2": ("olmo2", {}),
    "phi3": ("phi3", {"sliding_window": 11}),
    "phi3, long rope, rotary on half of a head": (
        "phi3",
        {
            "head_dim": 16,
            "hidden_size": 64,
            "original_max_position_embeddings": 128,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 1e4,
                "partial_rotary_factor": 0.5,
                **LONG_FACTORS,
            },
        },
    ),
    "granite": (
        "granite",
        {
            "embedding_multiplier": 3.0,
            "attention_multiplier": 0.2,
            "residual_multiplier": 0.4,
            "logits_scaling": 2.0,
        },
    ),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
async def test_greedy_tokens_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Batched, in chunks, preempted both ways and from the prefix cache."""
    model_type, settings = ARCHITECTURES[name]
    theirs = save_tiny(tmp_path, model_type, **settings)
    assert isinstance(load_tiny(tmp_path).model, LlamaModel)
    expected = [generate_with_transformers(theirs, prompt, NUM_NEW) for prompt in prompts(LENGTHS)]
    assert len({tuple(tokens) for tokens in expected}) == len(LENGTHS), (
        "a model that always says the same proves little"
    )
    for preemption in PREEMPTION_MODES:
        await check_in_engine(tmp_path, prompts(LENGTHS), expected, preemption)


@pytest.mark.parametrize(
    ("model_type", "settings"), [("llama", {"attention_bias": True, "mlp_bias": True}), ("qwen2", {})]
)
def test_layers_of_few_bits_say_the_same_in_one_call_and_one_by_one(
    model_type: str, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_tiny(tmp_path, model_type, hidden_size=64, intermediate_size=96, **settings)
    loaded = load_tiny(tmp_path, quantization="int8")
    assert isinstance(loaded.model, LlamaModel)
    at_once = Rows(loaded, prompts(LENGTHS), 64).run(5, NUM_NEW)
    assert len(set(map(tuple, at_once))) == len(LENGTHS)
    assert loaded.model._stack is not None
    monkeypatch.setattr(loaded.model, "_stack", None)
    assert Rows(loaded, prompts(LENGTHS), 64).run(5, NUM_NEW) == at_once


@pytest.mark.parametrize("model_type", ["qwen3", "smollm3", "olmo2", "granite"])
def test_layers_with_parts_that_the_one_call_lacks_go_one_by_one(model_type: str, tmp_path: Path) -> None:
    settings = ARCHITECTURES[model_type][1]
    save_tiny(tmp_path, model_type, **{**settings, "hidden_size": 64, "intermediate_size": 96})
    model = load_tiny(tmp_path, quantization="int8").model
    assert isinstance(model, LlamaModel)
    assert model._stack is None


def test_dynamic_rope_grows_as_generation_does(tmp_path: Path) -> None:
    """Beyond the trained length each position has the base that generating token by token gave it."""
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    theirs = save_tiny(tmp_path, "llama", max_position_embeddings=24, rope_parameters=rope)
    (prompt,) = prompts([20])
    expected = generate_with_transformers(theirs, prompt, 16)
    assert Rows(load_tiny(tmp_path), [prompt], 36).run(64, 16) == [expected]


def test_long_rope_takes_its_long_factors_where_the_length_is_long(tmp_path: Path) -> None:
    theirs = save_tiny(
        tmp_path,
        "phi3",
        original_max_position_embeddings=16,
        rope_parameters={"rope_type": "longrope", "rope_theta": 1e4, **LONG_FACTORS},
    )
    (prompt,) = prompts([30])
    expected = generate_with_transformers(theirs, prompt, 16)
    assert Rows(load_tiny(tmp_path), [prompt], 46).run(64, 16) == [expected]
    assert Rows(load_tiny(tmp_path, max_model_len=16), [prompt], 46).run(64, 16) != [expected]


def test_a_tensor_nobody_asked_for_stops_the_load(tmp_path: Path) -> None:
    """A bias that the architecture does not have must not be left out in silence."""
    theirs = save_tiny(tmp_path, "llama")
    extra = {**theirs.state_dict(), "model.layers.0.self_attn.sinks": torch.zeros(4)}
    theirs.save_pretrained(tmp_path, state_dict=extra)
    with pytest.raises(ModelLoadError, match=r"model\.layers\.0\.self_attn\.sinks"):
        load_tiny(tmp_path)
