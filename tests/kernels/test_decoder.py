"""All layers in one call: the same kernels as one by one, so the same numbers to the bit."""

from __future__ import annotations

import pytest
import torch

from kernels import DecoderStack, decoder_layers
from kernels.cpu import NativeBackend
from kernels.cpu_build import instruction_sets
from tests.kernels.cases import with_dtype
from tests.kernels.decoders import DECODERS, MIXED, compute_both_ways, draw_stack, prepare


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [each.name for each in instruction_sets()])
def test_the_result_is_that_of_the_operations_one_by_one(name: str, dtype: torch.dtype) -> None:
    backend = NativeBackend(next(each for each in instruction_sets() if each.name == name))
    for shape, case in DECODERS.items():
        at_once, one_by_one = compute_both_ways(with_dtype(case, dtype), backend)
        # Where vectors of 16 fit no head or block, the call does all with vectors of 8, the operations attention alone.
        tolerance = 0.0 if case.head_dim % 16 == case.block_size % 16 == 0 else 5e-2
        for ours, theirs in zip(at_once, one_by_one, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, msg=shape)


def test_what_does_not_fit_is_refused() -> None:
    backend = NativeBackend(instruction_sets()[0])
    hidden, scene, cache = prepare(MIXED, backend)
    stack, batch = draw_stack(MIXED), scene.batch()
    angles = torch.zeros(len(hidden), MIXED.head_dim // 2)
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
