"""Linear layers against plain matrix products."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from engine.errors import ModelLoadError
from engine.models.linear import Embedding, Linear, QuantizedLinear, take_linear
from engine.models.weights import Weights
from kernels import PackedWeight, quantize, silu_and_mul

CPU = torch.device("cpu")


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
@pytest.mark.parametrize("with_bias", [False, True])
def test_products_are_those_of_a_plain_layer(dtype: torch.dtype, tolerance: float, with_bias: bool) -> None:
    weight, bias = torch.randn(24, 16).to(dtype), torch.randn(24).to(dtype) if with_bias else None
    layer = Linear(weight.clone(), bias)
    for rows in (1, 2, 33):
        x = torch.randn(rows, 16).to(dtype)
        expected = functional.linear(x.double(), weight.double(), None if bias is None else bias.double())
        actual = layer(x)
        assert actual.dtype == dtype
        torch.testing.assert_close(actual.double(), expected, rtol=tolerance, atol=4 * tolerance)


def test_projections_become_one_layer_in_their_order() -> None:
    tensors = {
        "q.weight": torch.randn(4, 3),
        "k.weight": torch.randn(2, 3),
        "q.bias": torch.randn(4),
        "k.bias": torch.randn(2),
    }
    weights = Weights({name: lambda tensor=tensor: tensor for name, tensor in tensors.items()}, torch.float32, CPU)
    x = torch.randn(5, 3)
    query, key = take_linear(weights, "q", "k")(x).split([4, 2], dim=1)
    torch.testing.assert_close(query, functional.linear(x, tensors["q.weight"], tensors["q.bias"]))
    torch.testing.assert_close(key, functional.linear(x, tensors["k.weight"], tensors["k.bias"]))
    weights.check_all_taken()


def test_half_a_set_of_biases_is_refused() -> None:
    tensors = {"q.weight": torch.randn(4, 3), "k.weight": torch.randn(2, 3), "q.bias": torch.randn(4)}
    weights = Weights({name: lambda tensor=tensor: tensor for name, tensor in tensors.items()}, torch.float32, CPU)
    with pytest.raises(ModelLoadError, match=r"k\.bias"):
        take_linear(weights, "q", "k")


@pytest.mark.parametrize("num_outputs", [64, 48])
def test_a_gated_layer_halves_its_outputs(num_outputs: int) -> None:
    weight, x = quantize(torch.randn(num_outputs, 32), 8), torch.randn(5, 32)
    for layer in (Linear(weight.dequantize()), QuantizedLinear(PackedWeight.pack(weight))):
        torch.testing.assert_close(layer.gated(x), silu_and_mul(layer(x)), rtol=1e-4, atol=1e-4)


def test_an_embedding_with_few_bits_is_its_own_head() -> None:
    table = quantize(torch.randn(40, 64), 8)
    embedding = Embedding(table, torch.bfloat16)
    token_ids = torch.tensor([3, 39, 3])
    assert torch.equal(embedding(token_ids), table.dequantize()[token_ids].bfloat16())
    logits = embedding.as_head()(embedding(token_ids))
    assert logits.dtype == torch.float32
    expected = table.dequantize()[token_ids] @ table.dequantize().T
    assert (logits - expected).norm() / expected.norm() < 0.01


def test_bfloat16_needs_no_packing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a CPU that oneDNN does not multiply it on."""
    monkeypatch.setattr("engine.models.linear._packs", lambda dtype: False)
    weight, x = torch.randn(24, 16).bfloat16(), torch.randn(3, 16).bfloat16()
    assert torch.equal(Linear(weight)(x), functional.linear(x, weight))
