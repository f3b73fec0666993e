"""Paged attention on a GPU: one Triton kernel for prompts and decodes, one that merges splits of long contexts.

A program takes one sequence, one key/value head and a tile of query rows (queries times the heads that share the
key/value head), and walks over the context BLOCK_N tokens at a time with a running maximum and sum. Where that gives
too few programs to fill the chip, the context is split: each split leaves its maximum, sum and weighted values, and a
second kernel joins them, as in the block-wise formula of the PagedAttention paper. Exponentials are powers of two,
which is what the hardware computes; scores are scaled by log2(e) to match.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import triton
import triton.language as tl

from kernels.contract import AttentionBatch, AttentionOptions

if TYPE_CHECKING:
    from kernels.cache import KVCache

MAX_SPLITS = 64
# Programs that keep every chip we ship for busy; more splits than that only cost.
TARGET_PROGRAMS = 512


class Tiling(NamedTuple):
    """How one kernel is cut for one chip: query rows and tokens per tile, warps, stages of the load pipeline."""

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int


# (vendor, bytes of a query's number, padded numbers of a head) -> (tiling of decodes, tiling of prompts). The tests
# compile all of them: no tiling may need more shared memory or more registers than a chip has.
TILINGS = {
    ("cuda", 2, 64): (Tiling(16, 128, 4, 2), Tiling(128, 64, 8, 2)),
    ("cuda", 2, 128): (Tiling(16, 64, 8, 2), Tiling(64, 64, 8, 2)),
    ("cuda", 2, 256): (Tiling(16, 32, 8, 2), Tiling(32, 32, 8, 2)),
    ("cuda", 4, 64): (Tiling(16, 64, 4, 1), Tiling(16, 64, 4, 1)),
    ("cuda", 4, 128): (Tiling(16, 32, 8, 1), Tiling(16, 32, 8, 1)),
    ("cuda", 4, 256): (Tiling(16, 16, 4, 1), Tiling(16, 16, 4, 1)),
    ("hip", 2, 64): (Tiling(16, 64, 4, 1), Tiling(128, 64, 4, 1)),
    ("hip", 2, 128): (Tiling(16, 64, 4, 1), Tiling(64, 64, 4, 1)),
    ("hip", 2, 256): (Tiling(16, 32, 4, 1), Tiling(64, 32, 4, 1)),
    ("hip", 4, 64): (Tiling(16, 64, 4, 1), Tiling(32, 32, 4, 1)),
    ("hip", 4, 128): (Tiling(16, 32, 4, 1), Tiling(32, 32, 4, 1)),
    ("hip", 4, 256): (Tiling(16, 16, 4, 1), Tiling(32, 16, 4, 1)),
}


def find_tiling(vendor: str, itemsize: int, padded_dim: int, num_query_rows: int, is_fp8: bool) -> Tiling:
    """The declared tiling: that of decodes where all query rows of a sequence and key/value head fit into its tile.

    Numbers of a float8 cache pass through registers on their way to a product: prompts then take the smaller tiles.
    """
    row = max(64, padded_dim)
    decode, prompt = TILINGS[vendor, itemsize, row]
    if num_query_rows <= decode.block_m:
        return decode
    return TILINGS[vendor, 4, row][1] if is_fp8 else prompt


def paged_attention(
    query: torch.Tensor, cache: KVCache, layer: int, batch: AttentionBatch, options: AttentionOptions
) -> torch.Tensor:
    """As the door's, with checked arguments."""
    layout = cache.layout
    num_tokens, num_heads, head_dim = query.shape
    group = num_heads // layout.num_kv_heads
    padded_dim = max(16, triton.next_power_of_2(head_dim))
    is_fp8 = layout.dtype == torch.float8_e4m3fn
    tiling = find_tiling(_vendor(), query.itemsize, padded_dim, batch.max_query_len * group, is_fp8)
    num_tiles = triton.cdiv(batch.max_query_len * group, tiling.block_m)
    num_splits = _choose_splits(num_tiles * layout.num_kv_heads * batch.num_rows, batch.max_context_len, tiling.block_n)
    output = torch.empty((num_tokens, num_heads, head_dim), dtype=query.dtype, device=query.device)
    partial_shape = (num_tokens, num_heads, num_splits) if num_splits > 1 else (0, 0, 0)
    partials = torch.empty((*partial_shape, head_dim), dtype=torch.float32, device=query.device)
    weights = torch.empty((*partial_shape, 2), dtype=torch.float32, device=query.device)
    attention_kernel[(num_tiles * num_splits, layout.num_kv_heads, batch.num_rows)](
        output,
        partials,
        weights,
        query,
        storage_bits(cache),
        cache.scales[:, layer],
        batch.query_starts,
        batch.context_lens,
        batch.block_tables,
        query.stride(0),
        cache.storage.stride(0),
        layer * cache.storage.stride(1),
        batch.block_tables.stride(0),
        cache.scales.stride(0),
        options.scale,
        options.soft_cap or 0.0,
        options.sliding_window or 0,
        num_splits,
        GROUP=group,
        HEAD_DIM=head_dim,
        PADDED_DIM=padded_dim,
        BLOCK_SIZE=layout.block_size,
        BLOCK_M=tiling.block_m,
        BLOCK_N=tiling.block_n,
        HAS_CAP=options.soft_cap is not None,
        IS_FP8=is_fp8,
        IS_SPLIT=num_splits > 1,
        num_warps=tiling.num_warps,
        num_stages=tiling.num_stages,
    )
    if num_splits > 1:
        merge_kernel[(num_tokens, num_heads)](
            output, partials, weights, num_splits, HEAD_DIM=head_dim, PADDED_DIM=padded_dim, MAX_SPLITS=MAX_SPLITS
        )
    return output


def storage_bits(cache: KVCache) -> torch.Tensor:
    """The storage as kernels see it: float8 as bytes, which every chip can load."""
    return cache.storage.view(torch.uint8) if cache.layout.dtype == torch.float8_e4m3fn else cache.storage


def _choose_splits(num_programs: int, max_context_len: int, block_n: int) -> int:
    num_steps = triton.cdiv(max_context_len, block_n)
    return int(max(1, min(MAX_SPLITS, TARGET_PROGRAMS // max(1, num_programs), num_steps // 2)))


def _vendor() -> str:
    return "hip" if torch.version.hip else "cuda"


@triton.jit
def attention_kernel(
    output,  # [T, Hq, D]
    partials,  # [T, Hq, num_splits, D] float32, weighted values of each split
    weights,  # [T, Hq, num_splits, 2] float32, maximum and sum of each split
    query,  # [T, Hq, D]
    storage,  # [num_blocks, num_layers, Hkv, 2, BLOCK_SIZE, D]
    scales,  # [2, Hkv] of this layer, for float8
    query_starts,  # [B + 1]
    context_lens,  # [B]
    block_tables,  # [B, max_num_blocks]
    query_stride,
    block_stride,
    layer_offset,
    table_stride,
    scales_stride,
    scale,
    soft_cap,
    sliding_window,
    num_splits,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    HAS_CAP: tl.constexpr,
    IS_FP8: tl.constexpr,
    IS_SPLIT: tl.constexpr,
):
    tile, split = tl.program_id(0) // num_splits, tl.program_id(0) % num_splits
    kv_head, row = tl.program_id(1), tl.program_id(2)
    first_token = tl.load(query_starts + row)
    query_len = tl.load(query_starts + row + 1) - first_token
    if tile * BLOCK_M >= query_len * GROUP:
        return
    context_len = tl.load(context_lens + row)

    query_rows = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    in_row = query_rows < query_len * GROUP
    positions = context_len - query_len + query_rows // GROUP
    dims = tl.arange(0, PADDED_DIM)
    in_head = dims < HEAD_DIM
    query_offsets = (first_token + query_rows // GROUP).to(tl.int64) * query_stride
    query_offsets += (kv_head * GROUP + query_rows % GROUP) * HEAD_DIM
    q = tl.load(query + query_offsets[:, None] + dims[None, :], in_row[:, None] & in_head[None, :], other=0.0)

    # Tokens that some query of the tile sees, and this split's share of them.
    last_query = tl.minimum((tile * BLOCK_M + BLOCK_M - 1) // GROUP, query_len - 1)
    end = context_len - query_len + last_query + 1
    begin = 0
    if sliding_window > 0:
        begin = tl.maximum(context_len - query_len + tile * BLOCK_M // GROUP + 1 - sliding_window, 0)
        begin = begin // BLOCK_N * BLOCK_N
    share = tl.cdiv(tl.cdiv(end - begin, BLOCK_N), num_splits) * BLOCK_N
    begin += split * share
    end = tl.minimum(end, begin + share)

    table = block_tables + row * table_stride
    keys = storage + layer_offset + kv_head * (2 * BLOCK_SIZE * HEAD_DIM)
    values = keys + BLOCK_SIZE * HEAD_DIM
    if IS_FP8:
        scale *= tl.load(scales + kv_head)
    maxima = tl.full([BLOCK_M], float("-inf"), tl.float32)
    sums = tl.zeros([BLOCK_M], tl.float32)
    weighted = tl.zeros([BLOCK_M, PADDED_DIM], tl.float32)
    for start in range(begin, end, BLOCK_N):
        tokens = start + tl.arange(0, BLOCK_N)
        in_split = tokens < end
        blocks = tl.load(table + tokens // BLOCK_SIZE, in_split, other=0).to(tl.int64)
        offsets = blocks * block_stride + tokens % BLOCK_SIZE * HEAD_DIM
        k = tl.load(keys + offsets[None, :] + dims[:, None], in_head[:, None] & in_split[None, :], other=0.0)
        v = tl.load(values + offsets[:, None] + dims[None, :], in_split[:, None] & in_head[None, :], other=0.0)
        if IS_FP8:
            k, v = from_e4m3(k).to(q.dtype), from_e4m3(v).to(q.dtype)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        if HAS_CAP:
            scores = soft_cap * (2 * tl.sigmoid(2 * scores / soft_cap) - 1)
        seen = (tokens[None, :] <= positions[:, None]) & in_split[None, :]
        if sliding_window > 0:
            seen &= tokens[None, :] > positions[:, None] - sliding_window
        scores = tl.where(seen, scores * 1.4426950408889634, float("-inf"))
        new_maxima = tl.maximum(maxima, tl.max(scores, 1))
        base = tl.where(new_maxima == float("-inf"), 0.0, new_maxima)
        probabilities = tl.exp2(scores - base[:, None])
        keep = tl.exp2(maxima - base)
        sums = sums * keep + tl.sum(probabilities, 1)
        weighted = tl.dot(probabilities.to(v.dtype), v, weighted * keep[:, None], input_precision="ieee")
        maxima = new_maxima

    if IS_FP8:
        weighted *= tl.load(scales + scales_stride + kv_head)
    in_output = in_row[:, None] & in_head[None, :]
    heads = (first_token + query_rows // GROUP).to(tl.int64) * (tl.num_programs(1) * GROUP)
    heads += kv_head * GROUP + query_rows % GROUP
    if IS_SPLIT:
        parts = heads * num_splits + split
        tl.store(partials + parts[:, None] * HEAD_DIM + dims[None, :], weighted, in_output)
        tl.store(weights + parts * 2, maxima, in_row)
        tl.store(weights + parts * 2 + 1, sums, in_row)
    else:
        result = weighted / tl.where(sums == 0.0, 1.0, sums)[:, None]
        tl.store(output + heads[:, None] * HEAD_DIM + dims[None, :], result.to(output.dtype.element_ty), in_output)


@triton.jit
def merge_kernel(
    output,  # [T, Hq, D]
    partials,  # [T, Hq, num_splits, D] float32
    weights,  # [T, Hq, num_splits, 2] float32
    num_splits,
    HEAD_DIM: tl.constexpr,
    PADDED_DIM: tl.constexpr,
    MAX_SPLITS: tl.constexpr,
):
    head = tl.program_id(0).to(tl.int64) * tl.num_programs(1) + tl.program_id(1)
    splits = tl.arange(0, MAX_SPLITS)
    parts = head * num_splits + splits
    maxima = tl.load(weights + parts * 2, splits < num_splits, other=float("-inf"))
    sums = tl.load(weights + parts * 2 + 1, splits < num_splits, other=0.0)
    factors = tl.exp2(maxima - tl.max(maxima, 0))
    dims = tl.arange(0, PADDED_DIM)
    mask = (splits < num_splits)[:, None] & (dims < HEAD_DIM)[None, :]
    weighted = tl.load(partials + parts[:, None] * HEAD_DIM + dims[None, :], mask, other=0.0)
    result = tl.sum(weighted * factors[:, None], 0) / tl.sum(sums * factors, 0)
    tl.store(output + head * HEAD_DIM + dims, result.to(output.dtype.element_ty), dims < HEAD_DIM)


@triton.jit
def from_e4m3(codes):
    """Bytes to the numbers they stand for: as float16, with the same fields but for an exponent that is 8 smaller."""
    wide = codes.to(tl.int16)
    bits = ((wide & 0x80) << 8) | ((wide & 0x7F) << 7)
    numbers = bits.to(tl.float16, bitcast=True).to(tl.float32) * 256.0
    return tl.where((wide & 0x7F) == 0x7F, float("nan"), numbers)
