"""Low-bit weights and their products, held against float64 arithmetic with the very same levels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from kernels import GroupedWeight, PackedWeight, join, quantize, quantized_linear, reference
from kernels.contract import Backend
from kernels.cpu import NativeBackend
from kernels.cpu_build import instruction_sets
from kernels.quantized import Bits

ROWS = (1, 2, 3, 4, 5, 8, 9, 37)


@pytest.fixture(scope="module", params=instruction_sets(), ids=lambda each: each.name)
def backend(request: pytest.FixtureRequest) -> NativeBackend:
    return NativeBackend(request.param)


def draw_weight(num_outputs: int, num_inputs: int, bits: Bits, seed: int = 0) -> GroupedWeight:
    """Any levels, so that the extremes of the bytes occur too."""
    generator = torch.Generator().manual_seed(seed)
    shape = (num_outputs, num_inputs // 32)
    levels = torch.randint(0, 2**bits, (num_outputs, num_inputs), generator=generator, dtype=torch.uint8)
    scales = (torch.rand(shape, generator=generator) * 0.1).half()
    minima = torch.randn(shape, generator=generator).half() if bits == 4 else None
    return GroupedWeight(levels, scales, minima)


def draw_inputs(num_rows: int, num_inputs: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(num_rows, num_inputs, generator=torch.Generator().manual_seed(seed + 1))


def exact(x: torch.Tensor, weight: GroupedWeight) -> torch.Tensor:
    """The product of rounded inputs and weights, in float64."""
    groups = x.double().view(x.shape[0], -1, 32)
    steps = groups.abs().amax(dim=2, keepdim=True) / 127
    rounded = torch.round(groups / steps.clamp(min=1e-30)) * steps
    return rounded.view(x.shape) @ weight.dequantize().double().T


def multiply(backend: Backend, x: torch.Tensor, weight: PackedWeight, dtype: torch.dtype | None = None) -> torch.Tensor:
    return backend.quantized_linear(x, weight, None, None, is_gated=False, dtype=dtype or x.dtype)


@pytest.mark.parametrize("bits", [4, 8])
def test_products_are_exact_up_to_float_rounding(bits: Bits, backend: NativeBackend) -> None:
    for num_outputs, num_inputs in ((16, 32), (1, 64), (50, 96), (192, 576)):
        weight = draw_weight(num_outputs, num_inputs, bits)
        packed = PackedWeight.pack(weight)
        for num_rows in ROWS:
            x = draw_inputs(num_rows, num_inputs)
            expected = exact(x, weight)
            bound = 2e-6 * float(x.abs().sum(dim=1).max() * weight.dequantize().abs().max())
            assert float((multiply(backend, x, packed) - expected).abs().max()) <= bound


@pytest.mark.parametrize("bits", [4, 8])
def test_a_row_does_not_depend_on_its_neighbours_or_on_threads(bits: Bits, backend: NativeBackend) -> None:
    packed = PackedWeight.pack(draw_weight(80, 128, bits))
    x = draw_inputs(700, 128).bfloat16()
    together = multiply(backend, x, packed, torch.float32)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert torch.equal(multiply(backend, x, packed, torch.float32), together)
        for start, count in ((0, 1), (5, 2), (31, 3), (100, 4), (333, 11)):
            rows = slice(start, start + count)
            assert torch.equal(multiply(backend, x[rows].contiguous(), packed, torch.float32), together[rows])
    finally:
        torch.set_num_threads(threads)


@given(
    num_rows=st.integers(0, 20),
    num_outputs=st.integers(1, 70),
    num_groups=st.integers(1, 5),
    bits=st.sampled_from([4, 8]),
    seed=st.integers(0, 99),
)
@settings(max_examples=60)
def test_any_shape_gives_what_plain_pytorch_gives(
    num_rows: int, num_outputs: int, num_groups: int, bits: Bits, seed: int
) -> None:
    packed = PackedWeight.pack(draw_weight(num_outputs, 32 * num_groups, bits, seed))
    x = draw_inputs(num_rows, 32 * num_groups, seed)
    expected = multiply(reference, x, packed)
    torch.testing.assert_close(quantized_linear(x, packed), expected, rtol=1e-4, atol=1e-4)


def test_bias_residual_and_gate_are_applied_at_the_end(backend: NativeBackend) -> None:
    weight = draw_weight(128, 64, 4)
    packed = PackedWeight.pack(weight)
    bias, residual = torch.randn(128), torch.randn(9, 64)
    for num_rows in (1, 9):
        x = draw_inputs(num_rows, 64)
        gate, value = (exact(x, weight) + bias).chunk(2, dim=1)
        expected = functional.silu(gate) * value + residual[:num_rows]
        actual = backend.quantized_linear(
            x, packed, bias, residual[:num_rows].contiguous(), is_gated=True, dtype=torch.float32
        )
        torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-4)


def test_a_number_that_is_none_spoils_its_own_row_only(backend: NativeBackend) -> None:
    """The sampler must see it: a request fails, its neighbours go on."""
    packed = PackedWeight.pack(draw_weight(48, 64, 8))
    for bad in (float("nan"), float("inf"), -float("inf")):
        x = draw_inputs(9, 64)
        clean = multiply(backend, x, packed)
        x[4, 40] = bad
        spoiled = multiply(backend, x, packed)
        assert not spoiled[4].isfinite().any()
        others = torch.arange(9) != 4
        assert torch.equal(spoiled[others], clean[others])


def test_zeros_give_zeros(backend: NativeBackend) -> None:
    packed = PackedWeight.pack(draw_weight(16, 32, 8))
    assert torch.equal(multiply(backend, torch.zeros(5, 32), packed), torch.zeros(5, 16))


@pytest.mark.parametrize(("bits", "largest_error"), [(4, 0.09), (8, 0.009)])
def test_rounding_a_weight_costs_little(bits: Bits, largest_error: float) -> None:
    weight = torch.randn(40, 96, generator=torch.Generator().manual_seed(3))
    error = (quantize(weight, bits).dequantize() - weight).norm() / weight.norm()
    assert error < largest_error


def test_constant_groups_are_kept() -> None:
    weight = torch.full((2, 32), 0.25)
    assert torch.equal(quantize(weight, 4).dequantize(), weight)
    assert torch.equal(quantize(torch.zeros(2, 32), 8).dequantize(), torch.zeros(2, 32))


@pytest.mark.parametrize("bits", [4, 8])
def test_packed_rows_are_the_rows(bits: Bits) -> None:
    weights = [draw_weight(20, 96, bits, seed) for seed in (1, 2)]
    packed = PackedWeight.pack(join(weights))
    rows = torch.tensor([39, 0, 17, 17, 20])
    assert torch.equal(packed.rows(rows), torch.cat([weight.dequantize() for weight in weights])[rows])


def test_what_does_not_fit_is_refused() -> None:
    packed = PackedWeight.pack(draw_weight(24, 64, 8))
    with pytest.raises(ValueError, match="x must have 64 columns"):
        quantized_linear(torch.zeros(1, 32), packed)
    with pytest.raises(ValueError, match="multiple of 64 outputs"):
        quantized_linear(torch.zeros(1, 64), packed, is_gated=True)
    with pytest.raises(ValueError, match="bias"):
        quantized_linear(torch.zeros(1, 64), packed, torch.zeros(25))
    with pytest.raises(ValueError, match="residual"):
        quantized_linear(torch.zeros(2, 64), packed, residual=torch.zeros(2, 25))
    with pytest.raises(ValueError, match="multiple of 32"):
        GroupedWeight(torch.zeros(2, 33, dtype=torch.uint8), torch.zeros(2, 1).half())
    with pytest.raises(ValueError, match="scales"):
        GroupedWeight(torch.zeros(2, 32, dtype=torch.uint8), torch.zeros(2, 1))
