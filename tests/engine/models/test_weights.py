"""Tensors handed out once, and none forgotten."""

from __future__ import annotations

import pytest
import torch

from engine.errors import ModelLoadError
from engine.models.weights import Weights
from kernels import GroupedWeight, quantize
from kernels.quantized import Bits


def weights(*names: str) -> Weights:
    tensors = {name: lambda: torch.ones(2, dtype=torch.float32) for name in names}
    return Weights(tensors, torch.bfloat16, torch.device("cpu"))


def test_a_tensor_is_taken_once_in_the_wanted_dtype() -> None:
    source = weights("a.weight")
    assert "a.weight" in source
    assert source.take("a.weight").dtype == torch.bfloat16
    assert "a.weight" not in source
    with pytest.raises(ModelLoadError, match=r"no tensor a\.weight"):
        source.take("a.weight")
    assert source.take_if_present("a.weight") is None


def test_what_was_not_taken_is_named() -> None:
    source = weights("a.weight", "b.bias", "c", "d", "e")
    source.take("a.weight")
    with pytest.raises(ModelLoadError, match=r"its architecture lacks: b\.bias, c, d and 1 more$"):
        source.check_all_taken()


def test_buffers_that_follow_from_the_configuration_may_be_left() -> None:
    weights("model.layers.0.self_attn.rotary_emb.inv_freq", "transformer.h.0.attn.masked_bias").check_all_taken()


def matrices(max_bits: Bits | None, **stored: torch.Tensor | GroupedWeight) -> Weights:
    tensors = {name: lambda value=value: value for name, value in stored.items()}
    return Weights(tensors, torch.bfloat16, torch.device("cpu"), max_bits)


def taken_bits(source: Weights, *names: str, min_bits: Bits = 4) -> int:
    matrix = source.take_matrix(*names, min_bits=min_bits)
    return matrix.bits if isinstance(matrix, GroupedWeight) else 8 * matrix.element_size()


@pytest.mark.parametrize(
    ("stored", "max_bits", "bits"),
    [
        ((16, 16), None, 16),
        ((4, 4), None, 4),
        ((8, 8), None, 8),
        ((4, 8), None, 8),
        ((4, 16), None, 16),
        ((16, 16), 8, 8),
        ((16, 16), 4, 4),
        ((4, 4), 8, 4),
        ((8, 8), 4, 4),
        ((4, 16), 8, 8),
    ],
)
def test_a_matrix_has_the_bits_it_is_stored_in_or_fewer(
    stored: tuple[int, int], max_bits: Bits | None, bits: int
) -> None:
    floats = [torch.randn(3, 64), torch.randn(5, 64)]
    forms = {"a": floats[0], "b": floats[1]}
    for name, form in zip(forms, stored, strict=True):
        if form in (4, 8):
            forms[name] = quantize(forms[name], form)
    assert taken_bits(matrices(max_bits, **forms), "a", "b") == bits
    matrix = matrices(max_bits, **forms).take_matrix("a", "b")
    values = matrix.dequantize() if isinstance(matrix, GroupedWeight) else matrix.float()
    error = (values - torch.cat(floats)).norm() / values.norm()
    assert error < (0.12 if 4 in (*stored, bits) else 0.01)


def test_a_vocabulary_keeps_8_bits() -> None:
    assert taken_bits(matrices(4, a=torch.randn(3, 64)), "a", min_bits=8) == 8
    assert taken_bits(matrices(4, a=quantize(torch.randn(3, 64), 4)), "a", min_bits=8) == 4


def test_inputs_that_do_not_fall_into_groups_stay_floats() -> None:
    assert taken_bits(matrices(8, a=torch.randn(3, 48)), "a") == 16
