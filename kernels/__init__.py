"""Paged attention and its companions, for GPU and CPU behind one door.

Every operation takes the tensors of one device and runs on the backend chosen for that device: Triton on a GPU,
native code on a CPU, plain PyTorch where neither runs. All check shapes, strides, dtypes and devices first and raise
ValueError with the name of the argument that does not fit.

Letters of shapes: T new tokens of a step, B rows of a batch, Hq query heads, Hkv key/value heads, D numbers per head.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import overload

# Read by OpenMP when torch brings it in, so it is set first. By default its threads wait for each other by spinning for
# milliseconds, and whatever else runs on those cores (the event loop, a neighbour) then makes every parallel region 10
# times slower. Sleeping at once costs a wake-up in each region instead. A short spin costs little of either.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

import torch

from kernels import contract, reference
from kernels.backends import backend_for
from kernels.cache import KVCache, Transfer, swap_blocks
from kernels.contract import AttentionBatch, AttentionOptions, CacheLayout
from kernels.cpu_build import stop_compiling
from kernels.decoder import DecoderLayer, DecoderStack
from kernels.quantized import TILE, Bits, GroupedWeight, PackedWeight, join, quantize

__all__ = [
    "TILE",
    "AttentionBatch",
    "Bits",
    "CacheLayout",
    "DecoderLayer",
    "DecoderStack",
    "GroupedWeight",
    "KVCache",
    "PackedWeight",
    "Transfer",
    "copy_blocks",
    "decoder_layers",
    "join",
    "multiplies_low_bits",
    "paged_attention",
    "quantize",
    "quantized_linear",
    "rms_norm",
    "rotary_write_kv",
    "silu_and_mul",
    "stop_compiling",
    "supports",
    "swap_blocks",
    "write_kv",
]


def write_kv(cache: KVCache, layer: int, key: torch.Tensor, value: torch.Tensor, batch: AttentionBatch) -> None:
    """Store key and value [T, Hkv, D] of one layer in the slots of the batch."""
    contract.check_write(cache, layer, key, value, batch)
    if batch.num_tokens:
        cache.backend.write_kv(cache, layer, key, value, batch)


def rotary_write_kv(
    cache: KVCache,
    layer: int,
    states: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    rotation: tuple[torch.Tensor, torch.Tensor],
    batch: AttentionBatch,
) -> None:
    """Rotary embedding and write_kv in one pass.

    Args:
        states: query [T, Hq, D], rotated in place; key and value [T, Hkv, D], the key rotated on its way to the cache.
        rotation: cos and sin [T, R / 2] float32 of each token's position. Rotates the pairs (i, i + R / 2) of the first
            R numbers of a head, the rest stays (Su et al., RoFormer, 2021, in the order that GPT-NeoX brought in).
    """
    query, key, value = states
    contract.check_write(cache, layer, key, value, batch)
    contract.check_query(cache, query, batch)
    contract.check_alike("query", query, "key", key)
    contract.check_rotation(*rotation, cache, batch)
    if batch.num_tokens:
        cache.backend.rotary_write_kv(cache, layer, states, rotation, batch)


def paged_attention(
    query: torch.Tensor,
    cache: KVCache,
    layer: int,
    batch: AttentionBatch,
    *,
    scale: float,
    sliding_window: int | None = None,
    soft_cap: float | None = None,
) -> torch.Tensor:
    """Causal softmax attention of each row's new tokens over the row's context in the cache.

    Args:
        query: [T, Hq, D], Hq a multiple of Hkv: query head h reads key/value head h // (Hq / Hkv).
        scale: factor on the products of queries and keys, as a rule 1 / sqrt(D).
        sliding_window: a query sees only the last so many positions, its own included.
        soft_cap: scores s become soft_cap * tanh(s / soft_cap).

    Returns:
        [T, Hq, D] in the dtype of the query, contiguous.
    """
    contract.check_attention(cache, layer, query, batch)
    options = AttentionOptions(scale, sliding_window, soft_cap)
    if not batch.num_tokens:
        return torch.empty(query.shape, dtype=query.dtype, device=query.device)
    return cache.backend.paged_attention(query, cache, layer, batch, options)


def copy_blocks(cache: KVCache, sources: Sequence[int], targets: Sequence[int]) -> None:
    """Copy block sources[i] to block targets[i], all layers. No block may be both a source and a target."""
    contract.check_moves(sources, targets, cache.num_blocks, cache.num_blocks)
    if both := set(sources) & set(targets):
        raise ValueError(f"blocks {sorted(both)} are both source and target of one copy")
    if sources:
        cache.backend.copy_blocks(cache, sources, targets)


@overload
def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor: ...
@overload
def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]: ...
def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None = None
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Root-mean-square normalisation of each row of x [T, F], times weight [F] (Zhang and Sennrich, 2019).

    With a residual [T, F]: normalises x + residual, and returns that sum too, as the next residual.
    """
    contract.check_rows("x", x)
    contract.check_alike("weight", weight, "x", x)
    if weight.shape != x.shape[1:] or not weight.is_contiguous():
        raise ValueError(f"weight must be contiguous with shape [{x.shape[1]}], not {list(weight.shape)}")
    backend = backend_for(x.device.type)
    if residual is None:
        return backend.rms_norm(x, weight, eps, None)[0]
    contract.check_rows("residual", residual)
    contract.check_alike("residual", residual, "x", x)
    if residual.shape != x.shape:
        raise ValueError(f"residual must have the shape of x, {list(x.shape)}, not {list(residual.shape)}")
    return backend.rms_norm(x, weight, eps, residual)


def silu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """SwiGLU's elementwise half: silu(gate) * up [T, F] of gate_up [T, 2F], gate first (Shazeer, 2020)."""
    contract.check_rows("gate_up", gate_up)
    if gate_up.shape[1] % 2:
        raise ValueError(f"gate_up must have an even number of columns, not {gate_up.shape[1]}")
    return backend_for(gate_up.device.type).silu_and_mul(gate_up)


def quantized_linear(
    x: torch.Tensor,
    weight: PackedWeight,
    bias: torch.Tensor | None = None,
    *,
    residual: torch.Tensor | None = None,
    is_gated: bool = False,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """x W^T + bias with a weight of 4 or 8 bits; x is rounded to 8 bits in groups of 32 inputs, each with its scale.

    A row's result is the same whatever rows are computed along.

    Args:
        x: [T, K].
        bias: [N] float32.
        residual: added to the result, in its shape and dtype.
        is_gated: the first N / 2 outputs are gates g, the others values v: returns silu(g) * v [T, N / 2].
        dtype: of the result; that of x by default.
    """
    contract.check_rows("x", x)
    if x.shape[1] != weight.num_inputs:
        raise ValueError(f"x must have {weight.num_inputs} columns, not {x.shape[1]}")
    num_columns = weight.num_outputs // 2 if is_gated else weight.num_outputs
    if is_gated and weight.num_outputs % (2 * TILE):
        raise ValueError(f"a gated weight must have a multiple of {2 * TILE} outputs, not {weight.num_outputs}")
    if bias is not None and (bias.shape != (weight.num_outputs,) or bias.dtype != torch.float32):
        raise ValueError(f"bias must be [{weight.num_outputs}] float32, not {list(bias.shape)} {bias.dtype}")
    dtype = dtype or x.dtype
    if residual is not None:
        contract.check_rows("residual", residual, (dtype,))
        if residual.shape != (x.shape[0], num_columns):
            raise ValueError(f"residual must be {[x.shape[0], num_columns]}, not {list(residual.shape)}")
    return backend_for(x.device.type).quantized_linear(x, weight, bias, residual, is_gated=is_gated, dtype=dtype)


def decoder_layers(
    stack: DecoderStack,
    hidden: torch.Tensor,
    rotation: tuple[torch.Tensor, torch.Tensor],
    batch: AttentionBatch,
    cache: KVCache,
) -> torch.Tensor:
    """All layers of a decoder at once: what is saved is the time between kernels, most of a step of one token.

    Args:
        hidden: [T, H], what goes into the first layer; not changed.
        rotation: cos and sin as in ``rotary_write_kv``.

    Returns:
        [T, H], what comes out of the last layer, residual included.
    """
    contract.check_stack(stack, hidden, batch, cache)
    contract.check_rotation(*rotation, cache, batch)
    if not batch.num_tokens:
        return hidden
    return cache.backend.decoder_layers(stack, hidden, rotation, batch, cache)


def supports(device_type: str, layout: CacheLayout) -> bool:
    """Whether a device's best kernels read and write such a cache; the reference does so too, slowly."""
    return backend_for(device_type).supports(layout)


def multiplies_low_bits(device_type: str) -> bool:
    """Whether ``quantized_linear`` is fast on such a device, and not only right."""
    return backend_for(device_type).quantized_linear is not reference.quantized_linear
