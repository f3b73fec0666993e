"""What every backend receives: the cache's geometry and one ragged batch, checked before a launch."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Geometry of a paged KV cache. One block holds ``block_size`` tokens of all layers, keys and values.

    Block-major: whatever a backend does inside a block, dimension 0 of its storage is the block id, so that copying
    or swapping one block is one contiguous move.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype

    @property
    def block_bytes(self) -> int:
        per_token = 2 * self.num_layers * self.num_kv_heads * self.head_dim
        return per_token * self.block_size * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class AttentionBatch:
    """One step's ragged batch: B rows, T new tokens in all. Row b computes tokens query_starts[b]:query_starts[b+1].

    Attributes:
        query_starts: [B + 1] int32, offsets into the T tokens, from 0 to T.
        context_lens: [B] int32, tokens of each row in the cache once this step's are written; the row's queries are
            the last of them, at positions context_len - query_len .. context_len - 1.
        block_tables: [B, max_num_blocks] int32, physical block of each logical block; unused entries are 0.
        slot_mapping: [T] int64, block id * block_size + offset at which each new token's K and V are written.
        max_query_len: largest query length, known on the host.
        max_context_len: largest context length, known on the host.
    """

    query_starts: torch.Tensor
    context_lens: torch.Tensor
    block_tables: torch.Tensor
    slot_mapping: torch.Tensor
    max_query_len: int
    max_context_len: int
