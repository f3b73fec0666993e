"""Checks of everything but attention that any backend must pass, against definitions spelled out in float64."""

from __future__ import annotations

from itertools import product

import torch
from torch.nn import functional

from kernels import CacheLayout, KVCache, PackedWeight, quantize, reference
from kernels.contract import AttentionBatch, Backend
from tests.kernels.cases import TOLERANCES, Case, Scene

BLOCKS = [3, 0, 2, 4]


def check_rotary_write(backend: Backend, dtype: torch.dtype, device: str = "cpu", num_rotated: int = 48) -> None:
    """Query and key are rotated, the cache holds rotated keys and plain values, tokens may lie apart in memory."""
    case = Case(rows=((21, 30), (1, 7), (3, 3)), num_heads=6, num_kv_heads=2, dtype=dtype)
    scene = Scene(case, device)
    num_tokens = scene.query.shape[0]
    fused = torch.randn(num_tokens, 10, case.head_dim, device=device).to(dtype)
    query, key, value = fused.split([6, 2, 2], dim=1)
    angles = torch.rand(num_tokens, num_rotated // 2, device=device) * 6
    expected_query, expected_key = (rotated(states.cpu().double(), angles.cpu().double()) for states in (query, key))
    cache = scene.empty_cache(backend)
    backend.rotary_write_kv(cache, 1, (query, key, value), (angles.cos(), angles.sin()), scene.batch())
    assert_close(query, expected_query, dtype)
    keys, values = slots_of(cache, scene.batch())
    assert_close(keys, expected_key, dtype)
    assert torch.equal(values.to(dtype), value.cpu())


def rotated(states: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Each pair (i, i + R / 2) as a complex number, turned by its angle."""
    half = angles.shape[1]
    turned = torch.complex(states[..., :half], states[..., half : 2 * half]) * torch.polar(
        torch.ones_like(angles), angles
    ).unsqueeze(1)
    return torch.cat((turned.real, turned.imag, states[..., 2 * half :]), dim=-1)


def slots_of(cache: KVCache, batch: AttentionBatch) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values [T, Hkv, D] in the batch's slots of layer 1."""
    everything = torch.arange(cache.num_blocks, device=cache.device)
    keys, values = reference.gather(cache, 1, everything)
    slots = batch.slot_mapping
    return keys[:, slots].transpose(0, 1).cpu(), values[:, slots].transpose(0, 1).cpu()


def check_copy(backend: Backend, dtype: torch.dtype, device: str = "cpu") -> None:
    cache = KVCache.allocate(CacheLayout(3, 2, 32, 8, dtype), 6, device, backend=backend)
    numbers = torch.randint(0, 256, cache.storage.view(torch.uint8).shape, dtype=torch.uint8, device=device)
    cache.storage.view(torch.uint8).copy_(numbers)
    backend.copy_blocks(cache, [1, 4], [5, 0])
    expected = numbers[[4, 1, 2, 3, 4, 1]]
    assert torch.equal(cache.storage.view(torch.uint8), expected)


def check_norm(backend: Backend, dtype: torch.dtype, device: str = "cpu") -> None:
    for num_rows, size in ((1, 576), (37, 100), (300, 64), (0, 8)):
        x, residual = (torch.randn(num_rows, size, device=device).to(dtype) for _ in range(2))
        weight = torch.rand(size, device=device).to(dtype)
        normed, total = backend.rms_norm(x, weight, 1e-5, None)
        assert torch.equal(total, x)
        assert_close(normed, rms_norm(x, weight), dtype)
        normed, total = backend.rms_norm(x, weight, 1e-5, residual)
        assert_close(total, x.cpu().double() + residual.cpu().double(), dtype)
        assert_close(normed, rms_norm(x + residual, weight), dtype)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x.cpu().double(), x.shape[1:], weight.cpu().double(), 1e-5)


def check_swiglu(backend: Backend, dtype: torch.dtype, device: str = "cpu") -> None:
    for num_rows, size in ((1, 1536), (33, 20), (40, 1000), (0, 4)):
        gate_up = (torch.randn(num_rows, 2 * size, device=device) * 8).to(dtype)
        gate, up = gate_up.cpu().double().chunk(2, dim=1)
        assert_close(backend.silu_and_mul(gate_up), functional.silu(gate) * up, dtype)


def check_linear(backend: Backend, dtype: torch.dtype) -> None:
    """Products of few bits for numbers of rows that take different ways, with all that is applied at their end."""
    for bits, is_gated in product((4, 8), (True, False)):
        num_outputs = 128 if is_gated else 50
        packed = PackedWeight.pack(quantize(torch.randn(num_outputs, 160) * 160**-0.5, bits))
        bias = torch.randn(num_outputs)
        for num_rows in (0, 1, 3, 5, 33, 40):
            x, residual = torch.randn(num_rows, 160).to(dtype), torch.randn(num_rows, 64 if is_gated else 50).to(dtype)
            outputs = [
                each.quantized_linear(x, packed, bias, residual, is_gated=is_gated, dtype=dtype)
                for each in (backend, reference)
            ]
            torch.testing.assert_close(*outputs, rtol=2e-2, atol=2e-2)


def assert_close(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(actual.cpu().double(), expected, atol=tolerance, rtol=tolerance)
