"""Every architecture we take from GGUF, token for token against the model that the file was written from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gguf import GGUFWriter

from engine.config import EngineConfig
from engine.errors import ModelLoadError
from engine.loading import load_model
from tests.engine.loading.gguf_files import dequantized, write_gguf
from tests.engine.models.tiny import Rows, generate_with_transformers, load_tiny, make_tiny, prompts

LENGTHS = (1, 20)
NUM_NEW = 16
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 32}

ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {"attention_bias": True}),
    "llama, tied head": ("llama", {"tie_word_embeddings": True}),
    "llama, linear rope": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}}),
    "llama, yarn rope": ("llama", {"rope_parameters": YARN}),
    "mistral": ("mistral", {"sliding_window": None}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "smollm3": ("smollm3", {"num_hidden_layers": 4}),
    "olmo2": ("olmo2", {}),
    "phi3": ("phi3", {"sliding_window": 11}),
    "granite": ("granite", {"embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.4}),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_greedy_tokens_are_those_of_the_original(name: str, tmp_path: Path) -> None:
    model_type, settings = ARCHITECTURES[name]
    theirs = make_tiny(model_type, **settings)
    write_gguf(tmp_path / "tiny.gguf", theirs)
    ours = load_tiny(tmp_path / "tiny.gguf")
    assert ours.eos_token_ids == {1, 2}
    expected = [generate_with_transformers(theirs, prompt, NUM_NEW) for prompt in prompts(LENGTHS)]
    assert Rows(ours, prompts(LENGTHS), max(LENGTHS) + NUM_NEW).run(7, NUM_NEW) == expected


@pytest.mark.parametrize("quantization", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_stored_formats_give_the_values_they_stand_for(quantization: str, tmp_path: Path) -> None:
    theirs = make_tiny("llama", intermediate_size=64)
    write_gguf(tmp_path / "tiny.gguf", theirs, quantization)
    with torch.no_grad():
        for parameter in theirs.parameters():
            if parameter.dim() > 1:
                parameter.copy_(dequantized(parameter.detach(), quantization))
    (prompt,) = prompts([12])
    expected = generate_with_transformers(theirs, prompt, NUM_NEW)
    assert Rows(load_tiny(tmp_path / "tiny.gguf"), [prompt], 28).run(64, NUM_NEW) == [expected]


def test_llama_3_frequency_factors_are_applied(tmp_path: Path) -> None:
    """llama.cpp stores the factors that the rope parameters of Llama 3 come to, as one tensor."""
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    }
    theirs = make_tiny("llama", rope_parameters=rope)
    scaled = theirs.model.rotary_emb.inv_freq
    plain = 1.0 / 500.0 ** (torch.arange(0, 8, 2) / 8)
    assert not torch.allclose(scaled, plain)
    write_gguf(tmp_path / "tiny.gguf", theirs, extra={"rope_freqs.weight": plain / scaled})
    (prompt,) = prompts([12])
    expected = generate_with_transformers(theirs, prompt, NUM_NEW)
    assert Rows(load_tiny(tmp_path / "tiny.gguf"), [prompt], 28).run(64, NUM_NEW) == [expected]


def test_long_rope_factors_become_rope_parameters(tmp_path: Path) -> None:
    long, short = [1.5, 2.0, 3.0, 4.0], [1.0, 1.1, 1.2, 1.3]
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "long_factor": long, "short_factor": short}
    theirs = make_tiny("phi3", original_max_position_embeddings=16, rope_parameters=rope)
    factors = {"rope_factors_long.weight": torch.tensor(long), "rope_factors_short.weight": torch.tensor(short)}
    write_gguf(tmp_path / "tiny.gguf", theirs, extra=factors)
    (prompt,) = prompts([20])
    expected = generate_with_transformers(theirs, prompt, NUM_NEW)
    assert Rows(load_tiny(tmp_path / "tiny.gguf"), [prompt], 36).run(64, NUM_NEW) == [expected]


def test_the_tokenizer_comes_from_the_file(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", make_tiny("llama"))
    tokenizer = load_tiny(tmp_path / "tiny.gguf").tokenizer
    assert tokenizer.encode("<|end|>ab") == [byte + 3 for byte in b"<|end|>"] + [259]
    assert tokenizer.decode([259, 3 + ord("c")]) == "abc"


def test_other_architectures_and_missing_values_are_named(tmp_path: Path) -> None:
    for arch, words in (("mamba", "'mamba'"), ("qwen2", r"lacks the metadata qwen2\.attention\.head_count")):
        path = tmp_path / f"{arch}.gguf"
        writer = GGUFWriter(path, arch)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with pytest.raises(ModelLoadError, match=words):
            load_model(EngineConfig(model=str(path), device="cpu"))
