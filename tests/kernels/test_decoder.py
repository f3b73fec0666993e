"""All layers in one call: the same kernels as one by one, so the same numbers to the bit."""

from __future__ import annotations

import pytest
import torch

from kernels import DecoderLayer, DecoderStack, KVCache, PackedWeight, decoder_layers, quantize, reference
from kernels.cpu import NativeBackend
from kernels.cpu_build import instruction_sets
from tests.kernels.cases import Case, Scene

HIDDEN, INNER, HEAD_DIM = 96, 128, 32
CASE = Case(rows=((5, 5), (1, 140), (0, 3), (40, 60)), num_heads=4, num_kv_heads=2, head_dim=HEAD_DIM)


def draw_stack(dtype: torch.dtype) -> DecoderStack:
    """Two layers of unlike weights: one with 4 bits, biases and a window, one with 8."""
    generator = torch.Generator().manual_seed(0)

    def linear(num_outputs: int, num_inputs: int, number: int) -> tuple[PackedWeight, torch.Tensor | None]:
        weight = torch.randn(num_outputs, num_inputs, generator=generator) * num_inputs**-0.5
        bias = torch.randn(num_outputs, generator=generator) if number == 0 else None
        return PackedWeight.pack(quantize(weight, 8 if number else 4)), bias

    def layer(number: int) -> DecoderLayer:
        norms = 1 + torch.randn(2, HIDDEN, generator=generator).to(dtype)
        return DecoderLayer(
            attention_norm=norms[0].clone(),
            feed_forward_norm=norms[1].clone(),
            qkv=linear(8 * HEAD_DIM, HIDDEN, number),
            out=linear(HIDDEN, 4 * HEAD_DIM, number),
            gate_up=linear(2 * INNER, HIDDEN, number),
            down=linear(HIDDEN, INNER, number),
            scale=0.2,
            eps=1e-5,
            sliding_window=None if number else 50,
        )

    return DecoderStack([layer(0), layer(1)])


def prepare(dtype: torch.dtype, backend: NativeBackend) -> tuple[torch.Tensor, Scene, KVCache]:
    """Hidden states of the case's new tokens, and a cache with some past in both layers."""
    scene = Scene(Case(**{**vars(CASE), "dtype": dtype}))
    cache = KVCache.allocate(scene.case.layout, scene.num_blocks, "cpu", backend=backend)
    past = torch.randn(cache.storage.shape, generator=torch.Generator().manual_seed(1))
    cache.storage.copy_(past)
    return torch.randn(scene.query.shape[0], HIDDEN, generator=torch.Generator().manual_seed(2)).to(dtype), scene, cache


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [each.name for each in instruction_sets()])
def test_the_result_is_that_of_the_operations_one_by_one(name: str, dtype: torch.dtype) -> None:
    backend = NativeBackend(next(each for each in instruction_sets() if each.name == name))
    stack = draw_stack(dtype)
    results, caches = [], []
    for compute in (backend.decoder_layers, reference.decoder_layers):
        hidden, scene, cache = prepare(dtype, backend)
        angles = torch.rand(len(hidden), HEAD_DIM // 2, generator=torch.Generator().manual_seed(3)) * 6
        before = hidden.clone()
        results.append(compute(stack, hidden, (angles.cos(), angles.sin()), scene.batch(), cache))
        caches.append(cache.storage)
        assert torch.equal(hidden, before)
    assert results[0].isfinite().all()
    assert torch.equal(results[0], results[1])
    assert torch.equal(caches[0], caches[1])


def test_what_does_not_fit_is_refused() -> None:
    backend = NativeBackend(instruction_sets()[0])
    hidden, scene, cache = prepare(torch.float32, backend)
    stack, batch = draw_stack(torch.float32), scene.batch()
    angles = torch.zeros(len(hidden), HEAD_DIM // 2)
    with pytest.raises(ValueError, match="hidden must have 46 rows"):
        decoder_layers(stack, hidden[1:].contiguous(), (angles, angles), batch, cache)
    with pytest.raises(ValueError, match="hidden must be"):
        decoder_layers(stack, hidden.bfloat16(), (angles, angles), batch, cache)
    with pytest.raises(ValueError, match="has 2 layers, the stack 1"):
        decoder_layers(DecoderStack(stack.layers[:1]), hidden, (angles, angles), batch, cache)
    batch.slot_mapping[3] = -1
    with pytest.raises(ValueError, match="slot outside of the cache"):
        decoder_layers(stack, hidden, (angles, angles), batch, cache)
    batch.slot_mapping[3] = 0
    batch.block_tables[1, 0] = cache.num_blocks
    with pytest.raises(ValueError, match="block id outside of the cache"):
        decoder_layers(stack, hidden, (angles, angles), batch, cache)
