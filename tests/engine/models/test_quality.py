"""What few bits cost: perplexity of the demo model on an English text, and the answers it gives."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional

from engine.api import ChatMessage
from engine.batch import build_input
from engine.config import EngineConfig
from engine.loading import LoadedModel, load_model
from engine.plan import PlannedRow
from kernels import KVCache, reference
from tests.engine.models.english import TEXT
from tests.engine.real_model import loaded as loaded_in_float32

BLOCK_SIZE = 16


def run(model: LoadedModel, token_ids: list[int], **cache_settings: Any) -> torch.Tensor:
    """Logits of all positions, [T, V]."""
    num_blocks = -(-len(token_ids) // BLOCK_SIZE)
    layout = replace(model.model.layout(BLOCK_SIZE), **cache_settings)
    cache = KVCache.allocate(layout, num_blocks, "cpu", backend=reference if cache_settings else None)
    inputs = build_input([PlannedRow(0, token_ids, array("i", range(num_blocks)), ())], BLOCK_SIZE, model.device)
    with torch.inference_mode():
        hidden = model.model.forward(inputs.token_ids, inputs.positions, inputs.attention, cache)
        return model.model.compute_logits(hidden)


def perplexity(model: LoadedModel, **cache_settings: Any) -> float:
    token_ids = model.tokenizer.encode_prompt(TEXT)
    assert len(token_ids) > 600
    logits = run(model, token_ids, **cache_settings)
    return math.exp(functional.cross_entropy(logits[:-1], torch.tensor(token_ids[1:])))


@pytest.fixture(scope="module")
def exact() -> float:
    return perplexity(loaded_in_float32())


@pytest.mark.parametrize(
    ("settings", "largest_ratio"),
    [({"dtype": "auto"}, 1.01), ({"dtype": "float32", "quantization": "int8"}, 1.01), ({"dtype": "bfloat16"}, 1.01)],
    ids=str,
)
def test_perplexity_stays_close_to_that_of_float32(
    settings: dict[str, Any], largest_ratio: float, exact: float
) -> None:
    ratio = perplexity(load_model(EngineConfig(device="cpu", **settings))) / exact
    assert 1 / largest_ratio < ratio < largest_ratio


def test_perplexity_stays_close_with_keys_and_values_of_8_bits(exact: float) -> None:
    ratio = perplexity(loaded_in_float32(), dtype=torch.float8_e4m3fn) / exact
    assert 1 / 1.03 < ratio < 1.03


def test_the_file_s_own_bits_answer_sensibly() -> None:
    model = load_model(EngineConfig(device="cpu"))
    token_ids = model.tokenizer.encode_chat([ChatMessage("user", "What is the capital of France? One sentence.")])
    for _ in range(8):
        token_ids.append(int(run(model, token_ids)[-1].argmax()))
    assert "Paris" in model.tokenizer.decode(token_ids[-8:])
