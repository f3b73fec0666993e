"""Writing to the paged cache on a GPU, with or without rotary embedding, and copying its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from kernels.contract import AttentionBatch
from kernels.triton_attention import storage_bits

if TYPE_CHECKING:
    from kernels.cache import KVCache

COPY_WORDS = 4096


def write_kv(cache: KVCache, layer: int, key: torch.Tensor, value: torch.Tensor, batch: AttentionBatch) -> None:
    """As the door's, with checked arguments."""
    layout = cache.layout
    write_kernel[(batch.num_tokens, layout.num_kv_heads)](
        storage_bits(cache),
        key,
        value,
        cache.scales[:, layer],
        batch.slot_mapping,
        key.stride(0),
        value.stride(0),
        cache.storage.stride(0),
        layer * cache.storage.stride(1),
        cache.scales.stride(0),
        HEAD_DIM=layout.head_dim,
        PADDED_DIM=triton.next_power_of_2(layout.head_dim),
        BLOCK_SIZE=layout.block_size,
        IS_FP8=layout.dtype == torch.float8_e4m3fn,
        num_warps=1,
    )


def rotary_write_kv(
    cache: KVCache,
    layer: int,
    states: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    rotation: tuple[torch.Tensor, torch.Tensor],
    batch: AttentionBatch,
) -> None:
    """As the door's, with checked arguments."""
    (query, key, value), (cos, sin), layout = states, rotation, cache.layout
    num_heads, half = query.shape[1], cos.shape[1]
    rotary_write_kernel[(batch.num_tokens, num_heads + layout.num_kv_heads)](
        storage_bits(cache),
        query,
        key,
        value,
        cos,
        sin,
        cache.scales[:, layer],
        batch.slot_mapping,
        query.stride(0),
        key.stride(0),
        value.stride(0),
        cache.storage.stride(0),
        layer * cache.storage.stride(1),
        cache.scales.stride(0),
        NUM_HEADS=num_heads,
        HEAD_DIM=layout.head_dim,
        PADDED_DIM=triton.next_power_of_2(layout.head_dim),
        HALF=half,
        PADDED_HALF=triton.next_power_of_2(half),
        BLOCK_SIZE=layout.block_size,
        IS_FP8=layout.dtype == torch.float8_e4m3fn,
        num_warps=1,
    )


def copy_blocks(cache: KVCache, sources: Sequence[int], targets: Sequence[int]) -> None:
    """As the door's, with checked arguments."""
    moves = torch.tensor([sources, targets], dtype=torch.int64).to(cache.device)
    words = cache.storage.view(torch.uint8).view(cache.num_blocks, -1)
    if words.shape[1] % 4 == 0:
        words = words.view(torch.int32)
    copy_kernel[(len(sources), triton.cdiv(words.shape[1], COPY_WORDS))](
        words, moves, len(sources), words.shape[1], COPY_WORDS=COPY_WORDS, num_warps=8
    )


@triton.jit
def write_kernel(
    storage,  # [num_blocks, num_layers, Hkv, 2, BLOCK_SIZE, D]
    key,  # [T, Hkv, D]
    value,  # [T, Hkv, D]
    scales,  # [2, Hkv] of this layer, for float8
    slots,  # [T]
    key_stride,
    value_stride,
    block_stride,
    layer_offset,
    scales_stride,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    IS_FP8: tl.constexpr,
):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    dims = tl.arange(0, PADDED_DIM)
    in_head = dims < HEAD_DIM
    keys = storage + slot_offset(slots, token, head, block_stride, layer_offset, HEAD_DIM, BLOCK_SIZE)
    k = tl.load(key + token * key_stride + head * HEAD_DIM + dims, in_head)
    v = tl.load(value + token * value_stride + head * HEAD_DIM + dims, in_head)
    store_numbers(keys + dims, k, in_head, scales + head, IS_FP8)
    store_numbers(keys + BLOCK_SIZE * HEAD_DIM + dims, v, in_head, scales + scales_stride + head, IS_FP8)


@triton.jit
def rotary_write_kernel(
    storage,  # [num_blocks, num_layers, Hkv, 2, BLOCK_SIZE, D]
    query,  # [T, Hq, D]
    key,  # [T, Hkv, D]
    value,  # [T, Hkv, D]
    cos,  # [T, HALF] float32
    sin,  # [T, HALF] float32
    scales,  # [2, Hkv] of this layer, for float8
    slots,  # [T]
    query_stride,
    key_stride,
    value_stride,
    block_stride,
    layer_offset,
    scales_stride,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    HALF: tl.constexpr,
    PADDED_HALF: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    IS_FP8: tl.constexpr,
):
    token, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    pairs = tl.arange(0, PADDED_HALF)
    in_half = pairs < HALF
    c = tl.load(cos + token * HALF + pairs, in_half)
    s = tl.load(sin + token * HALF + pairs, in_half)
    if head < NUM_HEADS:
        target = query + token * query_stride + head * HEAD_DIM + pairs
        first, second = rotate(target, c, s, in_half, HALF)
        tl.store(target, first.to(query.dtype.element_ty), in_half)
        tl.store(target + HALF, second.to(query.dtype.element_ty), in_half)
    else:
        kv_head = head - NUM_HEADS
        source = key + token * key_stride + kv_head * HEAD_DIM
        keys = storage + slot_offset(slots, token, kv_head, block_stride, layer_offset, HEAD_DIM, BLOCK_SIZE)
        first, second = rotate(source + pairs, c, s, in_half, HALF)
        store_numbers(keys + pairs, first.to(key.dtype.element_ty), in_half, scales + kv_head, IS_FP8)
        store_numbers(keys + HALF + pairs, second.to(key.dtype.element_ty), in_half, scales + kv_head, IS_FP8)
        dims = tl.arange(0, PADDED_DIM)
        in_head = dims < HEAD_DIM
        in_rest = in_head & (dims >= 2 * HALF)
        store_numbers(keys + dims, tl.load(source + dims, in_rest), in_rest, scales + kv_head, IS_FP8)
        v = tl.load(value + token * value_stride + kv_head * HEAD_DIM + dims, in_head)
        values = keys + BLOCK_SIZE * HEAD_DIM
        store_numbers(values + dims, v, in_head, scales + scales_stride + kv_head, IS_FP8)


@triton.jit
def copy_kernel(
    words,  # [num_blocks, num_words]
    moves,  # [2, num_moves], sources and targets
    num_moves,
    num_words,
    COPY_WORDS: tl.constexpr,
):
    move = tl.program_id(0)
    offsets = tl.program_id(1) * COPY_WORDS + tl.arange(0, COPY_WORDS)
    in_block = offsets < num_words
    source = tl.load(moves + move) * num_words
    target = tl.load(moves + num_moves + move) * num_words
    tl.store(words + target + offsets, tl.load(words + source + offsets, in_block), in_block)


@triton.jit
def slot_offset(slots, token, head, block_stride, layer_offset, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    """Where the keys of one token and head lie; its values lie BLOCK_SIZE * HEAD_DIM further."""
    slot = tl.load(slots + token)
    region = layer_offset + head * (2 * BLOCK_SIZE * HEAD_DIM)
    return slot // BLOCK_SIZE * block_stride + region + slot % BLOCK_SIZE * HEAD_DIM


@triton.jit
def rotate(source, c, s, in_half, HALF: tl.constexpr):
    first = tl.load(source, in_half).to(tl.float32)
    second = tl.load(source + HALF, in_half).to(tl.float32)
    return first * c - second * s, second * c + first * s


@triton.jit
def store_numbers(target, numbers, mask, scale, IS_FP8: tl.constexpr):
    if IS_FP8:
        tl.store(target, to_e4m3(numbers.to(tl.float32) / tl.load(scale)), mask)
    else:
        tl.store(target, numbers, mask)


@triton.jit
def to_e4m3(x):
    """Bytes of the nearest e4m3 numbers, ties to even, at most 448 in size; in steps that every chip has.

    From 2^-6 on a number keeps 3 bits of its mantissa and its exponent less 120. Below, codes count steps of 2^-9:
    adding 2^23 rounds to a whole number of them.
    """
    bits = x.to(tl.int32, bitcast=True)
    magnitude = tl.minimum(tl.abs(x), 448.0)
    size = magnitude.to(tl.int32, bitcast=True)
    normal = ((size + 0x7FFFF + ((size >> 20) & 1)) >> 20) - (120 << 3)
    subnormal = (magnitude * 512.0 + 8388608.0).to(tl.int32, bitcast=True) & 0xFF
    code = tl.where(magnitude < 0.015625, subnormal, normal)
    code = tl.where(x == x, code, 0x7F)
    return (code | ((bits >> 24) & 0x80)).to(tl.uint8)
