"""Every operation in plain PyTorch: the oracle of the other backends, and the fallback where none of them runs.

Works on any device, any layout and either order inside a block; computes in float32, one row of the batch at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from kernels.contract import AttentionBatch, AttentionOptions, CacheLayout
from kernels.quantized import GROUP, PackedWeight

if TYPE_CHECKING:
    from kernels.cache import KVCache
    from kernels.decoder import DecoderStack

name = "reference"
packed = False


def supports(layout: CacheLayout) -> bool:
    return True


def write_kv(cache: KVCache, layer: int, key: torch.Tensor, value: torch.Tensor, batch: AttentionBatch) -> None:
    block_size = cache.layout.block_size
    blocks, offsets = batch.slot_mapping // block_size, batch.slot_mapping % block_size
    keys, values = cache.keys(layer), cache.values(layer)
    width = values.shape[3]
    stored_key = _to_storage(key, cache, cache.scales[0, layer])
    stored_value = _to_storage(value, cache, cache.scales[1, layer])
    _bits(keys)[blocks, :, offsets] = _bits(torch.unflatten(stored_key, -1, keys.shape[3:]))
    _bits(values)[blocks, :, offsets // width, offsets % width] = _bits(stored_value)


def rotary_write_kv(
    cache: KVCache,
    layer: int,
    states: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    rotation: tuple[torch.Tensor, torch.Tensor],
    batch: AttentionBatch,
) -> None:
    query, key, value = states
    query.copy_(_rotate(query, *rotation))
    write_kv(cache, layer, _rotate(key, *rotation), value, batch)


def paged_attention(
    query: torch.Tensor, cache: KVCache, layer: int, batch: AttentionBatch, options: AttentionOptions
) -> torch.Tensor:
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    starts, context_lens = batch.query_starts.tolist(), batch.context_lens.tolist()
    for row, context_len in enumerate(context_lens):
        tokens = slice(starts[row], starts[row + 1])
        if tokens.start == tokens.stop:
            continue
        num_blocks = -(-context_len // cache.layout.block_size)
        keys, values = gather(cache, layer, batch.block_tables[row, :num_blocks])
        output[tokens] = dense_attention(query[tokens], keys[:, :context_len], values[:, :context_len], options)
    return output


def gather(cache: KVCache, layer: int, blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of the blocks as they were written, both [Hkv, N * block_size, D], float32."""
    block_ids = blocks.long()
    gathered = []
    for stored, scales in ((cache.keys(layer), cache.scales[0]), (cache.values(layer), cache.scales[1])):
        heads_first = stored[block_ids].transpose(0, 1)
        dense = heads_first.reshape(cache.layout.num_kv_heads, -1, cache.layout.head_dim).float()
        gathered.append(dense * scales[layer, :, None, None] if _is_scaled(cache) else dense)
    return gathered[0], gathered[1]


def dense_attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, options: AttentionOptions
) -> torch.Tensor:
    """Softmax attention of the last N of C positions, in the dtype of the keys.

    Args:
        query: [N, Hq, D].
        keys, values: [Hkv, C, D]; each of their heads serves Hq / Hkv neighbouring query heads.
    """
    num_tokens, num_heads, head_dim = query.shape
    num_kv_heads, context_len, _ = keys.shape
    grouped = query.to(keys.dtype).transpose(0, 1).reshape(num_kv_heads, -1, head_dim)
    scores = (grouped @ keys.transpose(1, 2) * options.scale).view(num_heads, num_tokens, context_len)
    if options.soft_cap is not None:
        scores = options.soft_cap * torch.tanh(scores / options.soft_cap)
    if num_tokens > 1 or options.sliding_window is not None:
        scores = scores.masked_fill(_hidden(num_tokens, context_len, options.sliding_window, query.device), -torch.inf)
    weights = torch.softmax(scores, dim=-1).view(num_kv_heads, -1, context_len)
    return (weights @ values).view(num_heads, num_tokens, head_dim).transpose(0, 1)


def copy_blocks(cache: KVCache, sources: Sequence[int], targets: Sequence[int]) -> None:
    storage = _bits(cache.storage)
    storage[list(targets)] = storage[list(sources)]


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    total = x if residual is None else x + residual
    wide = total.float()
    normed = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + eps)
    return (normed * weight.float()).to(x.dtype), total


def silu_and_mul(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.float().chunk(2, dim=-1)
    return (functional.silu(gate) * up).to(gate_up.dtype)


def _hidden(num_tokens: int, context_len: int, window: int | None, device: torch.device) -> torch.Tensor:
    """Where a query must not look: [N, C], true for positions after its own or before its window."""
    key_positions = torch.arange(context_len, device=device)
    query_positions = key_positions[context_len - num_tokens :, None]
    hidden = key_positions > query_positions
    if window is not None:
        hidden |= key_positions <= query_positions - window
    return hidden


def _rotate(states: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate the pairs (i, i + R / 2) of each head's first R numbers."""
    half = cos.shape[1]
    first, second, rest = states.float().split([half, half, states.shape[-1] - 2 * half], dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    rotated = torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)
    return rotated.to(states.dtype)


def _is_scaled(cache: KVCache) -> bool:
    return cache.layout.dtype == torch.float8_e4m3fn


def _to_storage(states: torch.Tensor, cache: KVCache, scales: torch.Tensor) -> torch.Tensor:
    if not _is_scaled(cache):
        return states
    limit = torch.finfo(torch.float8_e4m3fn).max
    return (states.float() / scales[:, None]).clamp(-limit, limit).to(torch.float8_e4m3fn)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Float8 tensors as bytes, since PyTorch has no indexed write for them."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.float8_e4m3fn else tensor


def quantized_linear(
    x: torch.Tensor,
    weight: PackedWeight,
    bias: torch.Tensor | None,
    residual: torch.Tensor | None,
    *,
    is_gated: bool,
    dtype: torch.dtype,
) -> torch.Tensor:
    product = round_inputs(x) @ weight.rows(torch.arange(weight.num_outputs)).T
    if bias is not None:
        product = product + bias
    if is_gated:
        product = silu_and_mul(product)
    return (product if residual is None else product + residual).to(dtype)


def round_inputs(x: torch.Tensor) -> torch.Tensor:
    """Inputs [T, K] as the products see them, float32: each group of 32 in 255 steps around 0."""
    groups = x.float().view(x.shape[0], x.shape[1] // GROUP, GROUP)
    largest = groups.abs().amax(dim=2, keepdim=True)
    factor = torch.where(largest > 0, 127.0 / largest, 0.0)
    return (torch.round(groups * factor) * (largest / 127.0)).view(x.shape)


def decoder_layers(
    stack: DecoderStack,
    hidden: torch.Tensor,
    rotation: tuple[torch.Tensor, torch.Tensor],
    batch: AttentionBatch,
    cache: KVCache,
) -> torch.Tensor:
    """With the other operations of the cache's backend."""
    backend, head_dim, num_kv_heads = cache.backend, cache.layout.head_dim, cache.layout.num_kv_heads

    def linear(
        x: torch.Tensor, layer: tuple[PackedWeight, torch.Tensor | None], residual: torch.Tensor | None = None
    ) -> torch.Tensor:
        return backend.quantized_linear(x, *layer, residual, is_gated=False, dtype=x.dtype)

    for index, layer in enumerate(stack.layers):
        normed, _ = backend.rms_norm(hidden, layer.attention_norm, layer.eps, None)
        heads = linear(normed, layer.qkv).view(batch.num_tokens, -1, head_dim)
        query, key, value = heads.split([heads.shape[1] - 2 * num_kv_heads, num_kv_heads, num_kv_heads], dim=1)
        backend.rotary_write_kv(cache, index, (query, key, value), rotation, batch)
        options = AttentionOptions(layer.scale, layer.sliding_window)
        attended = backend.paged_attention(query, cache, index, batch, options)
        hidden = linear(attended.view(batch.num_tokens, -1), layer.out, hidden)
        normed, _ = backend.rms_norm(hidden, layer.feed_forward_norm, layer.eps, None)
        gate_up, bias = layer.gate_up
        activated = backend.quantized_linear(normed, gate_up, bias, None, is_gated=True, dtype=hidden.dtype)
        hidden = linear(activated, layer.down, hidden)
    return hidden
