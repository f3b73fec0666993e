"""Decoders of two small layers over ragged batches, computed in one call and operation by operation."""

from __future__ import annotations

import torch

from kernels import DecoderLayer, DecoderStack, KVCache, PackedWeight, quantize, reference
from kernels.cpu import NativeBackend
from tests.kernels.cases import Case, Scene

HIDDEN, INNER = 96, 128

MIXED = Case(rows=((5, 5), (1, 140), (0, 3), (40, 60)), num_heads=4, num_kv_heads=2, head_dim=32)
DECODERS = {
    "mixed": MIXED,
    "prefill, heads that are no whole vectors, a last tile that is not full": Case(
        rows=((70, 70), (17, 17)), num_heads=4, num_kv_heads=1, head_dim=24, block_size=8
    ),
    "decode, many heads to a group": Case(
        rows=((1, 1), (1, 16), (1, 300)), num_heads=8, num_kv_heads=1, head_dim=64, block_size=32
    ),
    "one token": Case(rows=((1, 33),), num_heads=3, num_kv_heads=3, head_dim=32),
}


def draw_stack(case: Case) -> DecoderStack:
    """Two layers of unlike weights: one with 4 bits, biases and a window, one with 8."""
    generator = torch.Generator().manual_seed(0)
    num_outputs = case.num_heads * case.head_dim

    def linear(num_outputs: int, num_inputs: int, number: int) -> tuple[PackedWeight, torch.Tensor | None]:
        weight = torch.randn(num_outputs, num_inputs, generator=generator) * num_inputs**-0.5
        bias = torch.randn(num_outputs, generator=generator) if number == 0 else None
        return PackedWeight.pack(quantize(weight, 8 if number else 4)), bias

    def layer(number: int) -> DecoderLayer:
        norms = 1 + torch.randn(2, HIDDEN, generator=generator).to(case.dtype)
        return DecoderLayer(
            attention_norm=norms[0].clone(),
            feed_forward_norm=norms[1].clone(),
            qkv=linear(num_outputs + 2 * case.num_kv_heads * case.head_dim, HIDDEN, number),
            out=linear(HIDDEN, num_outputs, number),
            gate_up=linear(2 * INNER, HIDDEN, number),
            down=linear(HIDDEN, INNER, number),
            scale=0.2,
            eps=1e-5,
            sliding_window=None if number else 50,
        )

    return DecoderStack([layer(0), layer(1)])


def prepare(case: Case, backend: NativeBackend) -> tuple[torch.Tensor, Scene, KVCache]:
    """Hidden states of the case's new tokens, and a cache with some past in both layers."""
    scene = Scene(case)
    cache = KVCache.allocate(case.layout, scene.num_blocks, "cpu", backend=backend)
    past = torch.randn(cache.storage.shape, generator=torch.Generator().manual_seed(1))
    cache.storage.copy_(past)
    hidden = torch.randn(scene.query.shape[0], HIDDEN, generator=torch.Generator().manual_seed(2))
    return hidden.to(case.dtype), scene, cache


def compute_both_ways(case: Case, backend: NativeBackend) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What comes out of the last layer and the cache that is left, of the one call and of the operations one by one."""
    stack, results = draw_stack(case), []
    for compute in (backend.decoder_layers, reference.decoder_layers):
        hidden, scene, cache = prepare(case, backend)
        angles = torch.rand(len(hidden), case.head_dim // 2, generator=torch.Generator().manual_seed(3)) * 6
        before = hidden.clone()
        output = compute(stack, hidden, (angles.cos(), angles.sin()), scene.batch(), cache)
        assert torch.equal(hidden, before)
        assert output.isfinite().all()
        results.append((output, cache.storage))
    return results
