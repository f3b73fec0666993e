"""What every backend receives: the cache's geometry and one ragged batch, checked before a launch.

All checks raise ValueError and name the argument. They look at shapes, strides, dtypes and devices, never at values
that would have to come back from a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

if TYPE_CHECKING:
    from kernels.cache import KVCache
    from kernels.decoder import DecoderStack
    from kernels.quantized import PackedWeight

FLOAT_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
CACHE_DTYPES = (*FLOAT_DTYPES, torch.float8_e4m3fn)
MAX_HEAD_DIM = 256


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """Geometry of a paged KV cache. One block holds ``block_size`` tokens of all layers, keys and values.

    Block-major: whatever a backend does inside a block, dimension 0 of its storage is the block id, so that copying
    or swapping one block is one contiguous move. With ``torch.float8_e4m3fn`` keys and values are stored divided by
    the cache's scale of their head, and the model's own dtype may be any of float32, bfloat16 and float16.
    """

    num_layers: int
    num_kv_heads: int
    head_dim: int
    block_size: int
    dtype: torch.dtype

    def __post_init__(self) -> None:
        for name in ("num_layers", "num_kv_heads", "head_dim", "block_size"):
            _check(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}")
        _check(self.head_dim <= MAX_HEAD_DIM, f"head_dim must be at most {MAX_HEAD_DIM}, not {self.head_dim}")
        _check(self.dtype in CACHE_DTYPES, f"dtype of a KV cache must be one of {CACHE_DTYPES}, not {self.dtype}")

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

    def __post_init__(self) -> None:
        num_rows = self.context_lens.shape[0] if self.context_lens.dim() == 1 else -1
        _check_index("context_lens", self.context_lens, torch.int32, "[B]", num_rows >= 0)
        _check_index(
            "query_starts", self.query_starts, torch.int32, "[B + 1]", self.query_starts.shape == (num_rows + 1,)
        )
        tables_fit = self.block_tables.dim() == 2 and self.block_tables.shape[0] == num_rows
        _check_index("block_tables", self.block_tables, torch.int32, "[B, max_num_blocks]", tables_fit)
        _check_index("slot_mapping", self.slot_mapping, torch.int64, "[T]", self.slot_mapping.dim() == 1)
        devices = {t.device for t in (self.query_starts, self.context_lens, self.block_tables, self.slot_mapping)}
        _check(len(devices) == 1, f"the tensors of a batch must be on one device, not on {sorted(map(str, devices))}")
        _check(
            0 <= self.max_query_len <= self.max_context_len or num_rows == 0,
            f"max_query_len ({self.max_query_len}) must be from 0 to max_context_len ({self.max_context_len})",
        )

    @property
    def num_rows(self) -> int:
        return self.context_lens.shape[0]

    @property
    def num_tokens(self) -> int:
        return self.slot_mapping.shape[0]


@dataclass(frozen=True, slots=True)
class AttentionOptions:
    """How scores become weights.

    Attributes:
        scale: factor on the products of queries and keys, as a rule 1 / sqrt(head_dim).
        sliding_window: a query sees only the last so many positions, its own included; None: all.
        soft_cap: scores s become soft_cap * tanh(s / soft_cap); None: they stay.
    """

    scale: float
    sliding_window: int | None = None
    soft_cap: float | None = None

    def __post_init__(self) -> None:
        window, cap = self.sliding_window, self.soft_cap
        _check(window is None or window >= 1, f"sliding_window must be at least 1, not {window}")
        _check(cap is None or cap > 0, f"soft_cap must be above 0, not {cap}")


class Backend(Protocol):
    """One implementation of the operations; the door in ``kernels/__init__.py`` documents and checks each of them."""

    @property
    def name(self) -> str: ...

    @property
    def packed(self) -> bool:
        """Which of the two orders inside a block it works on; see ``KVCache``."""
        ...

    def supports(self, layout: CacheLayout) -> bool: ...

    def write_kv(
        self, cache: KVCache, layer: int, key: torch.Tensor, value: torch.Tensor, batch: AttentionBatch
    ) -> None: ...

    def rotary_write_kv(
        self,
        cache: KVCache,
        layer: int,
        states: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        rotation: tuple[torch.Tensor, torch.Tensor],
        batch: AttentionBatch,
    ) -> None: ...

    def paged_attention(
        self, query: torch.Tensor, cache: KVCache, layer: int, batch: AttentionBatch, options: AttentionOptions
    ) -> torch.Tensor: ...

    def copy_blocks(self, cache: KVCache, sources: Sequence[int], targets: Sequence[int]) -> None: ...

    def rms_norm(
        self, x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]: ...

    def silu_and_mul(self, gate_up: torch.Tensor) -> torch.Tensor: ...

    def quantized_linear(
        self,
        x: torch.Tensor,
        weight: PackedWeight,
        bias: torch.Tensor | None,
        residual: torch.Tensor | None,
        *,
        is_gated: bool,
        dtype: torch.dtype,
    ) -> torch.Tensor: ...

    def decoder_layers(
        self,
        stack: DecoderStack,
        hidden: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        batch: AttentionBatch,
        cache: KVCache,
    ) -> torch.Tensor: ...


def check_write(cache: KVCache, layer: int, key: torch.Tensor, value: torch.Tensor, batch: AttentionBatch) -> None:
    """Key and value [T, Hkv, D] must fit the cache and the batch."""
    _check_layer(cache, layer)
    for name, tensor in (("key", key), ("value", value)):
        _check_heads(name, tensor, cache, batch)
        if tensor.shape[1] != cache.layout.num_kv_heads:
            raise ValueError(f"{name} must have {cache.layout.num_kv_heads} heads, not {tensor.shape[1]}")
    check_alike("value", value, "key", key)


def check_query(cache: KVCache, query: torch.Tensor, batch: AttentionBatch) -> None:
    """Query [T, Hq, D] must fit the cache and the batch, and Hq be a multiple of the key heads."""
    _check_heads("query", query, cache, batch)
    num_heads, num_kv_heads = query.shape[1], cache.layout.num_kv_heads
    if num_heads < 1 or num_heads % num_kv_heads:
        raise ValueError(f"query must have a multiple of num_kv_heads ({num_kv_heads}) heads, not {num_heads}")


def check_attention(cache: KVCache, layer: int, query: torch.Tensor, batch: AttentionBatch) -> None:
    """As check_query; besides, the block tables must hold the longest context."""
    _check_layer(cache, layer)
    check_query(cache, query, batch)
    num_slots = batch.block_tables.shape[1] * cache.layout.block_size
    if batch.num_rows and batch.max_context_len > num_slots:
        raise ValueError(
            f"max_context_len ({batch.max_context_len}) is more than block_tables hold ({num_slots} slots)"
        )


def check_stack(stack: DecoderStack, hidden: torch.Tensor, batch: AttentionBatch, cache: KVCache) -> None:
    """Hidden states [T, H] in the dtype of the cache; the cache must have as many layers and heads as the stack."""
    layout = cache.layout
    check_rows("hidden", hidden, (layout.dtype,))
    if hidden.shape[0] != batch.num_tokens or hidden.device != cache.device:
        raise ValueError(f"hidden must have {batch.num_tokens} rows on {cache.device}, not {list(hidden.shape)}")
    if len(stack.layers) != layout.num_layers:
        raise ValueError(f"the cache has {layout.num_layers} layers, the stack {len(stack.layers)}")
    first = stack.layers[0]
    num_outputs = first.out[0].num_inputs + 2 * layout.num_kv_heads * layout.head_dim
    if first.qkv[0].num_outputs != num_outputs or first.out[0].num_inputs % (layout.num_kv_heads * layout.head_dim):
        raise ValueError(f"qkv and out of the stack do not fit {layout.num_kv_heads} heads of {layout.head_dim}")


def check_rotation(cos: torch.Tensor, sin: torch.Tensor, cache: KVCache, batch: AttentionBatch) -> None:
    """Cosines and sines [T, R / 2] float32, R <= head_dim."""
    for name, tensor in (("cos", cos), ("sin", sin)):
        check_rows(name, tensor, (torch.float32,))
        if tensor.shape[0] != batch.num_tokens or 2 * tensor.shape[1] > cache.layout.head_dim:
            expected = f"[{batch.num_tokens}, R / 2], R <= {cache.layout.head_dim}"
            raise ValueError(f"{name} must have shape {expected}, not {list(tensor.shape)}")
    if cos.shape != sin.shape or cos.device != cache.device or sin.device != cache.device:
        raise ValueError(f"cos and sin must have one shape and be on {cache.device}")


def check_moves(sources: Sequence[int], targets: Sequence[int], num_sources: int, num_targets: int) -> None:
    """Equally many ids, each within its cache, no target twice: moves of one call may run in any order."""
    if len(sources) != len(targets):
        raise ValueError(f"sources ({len(sources)}) and targets ({len(targets)}) must be equally many")
    for name, ids, limit in (("sources", sources, num_sources), ("targets", targets, num_targets)):
        if ids and (min(ids) < 0 or max(ids) >= limit):
            raise ValueError(f"{name} must be block ids from 0 to {limit - 1}, not {list(ids)}")
    if len(set(targets)) != len(targets):
        raise ValueError(f"targets must differ from each other: {list(targets)}")


def check_rows(name: str, tensor: torch.Tensor, dtypes: tuple[torch.dtype, ...] = FLOAT_DTYPES) -> None:
    """A contiguous [T, F] tensor of one of the dtypes."""
    if tensor.dtype not in dtypes:
        raise ValueError(f"{name} must be {_any_of(dtypes)}, not {tensor.dtype}")
    if tensor.dim() != 2 or not tensor.is_contiguous():
        raise ValueError(f"{name} must be contiguous with two dimensions; shape {list(tensor.shape)}")


def check_alike(name: str, tensor: torch.Tensor, other_name: str, other: torch.Tensor) -> None:
    """Both tensors have one dtype and are on one device."""
    if tensor.dtype != other.dtype or tensor.device != other.device:
        raise ValueError(
            f"{name} ({tensor.dtype} on {tensor.device}) must have the dtype and device of {other_name} "
            f"({other.dtype} on {other.device})"
        )


def _check(condition: bool, message: str) -> None:
    """For checks outside the hot path: the message is built even when all is well."""
    if not condition:
        raise ValueError(message)


def _check_index(name: str, tensor: torch.Tensor, dtype: torch.dtype, shape: str, fits: bool) -> None:
    _check(fits, f"{name} must have shape {shape}, not {list(tensor.shape)}")
    _check(tensor.dtype == dtype, f"{name} must be {dtype}, not {tensor.dtype}")
    _check(tensor.is_contiguous(), f"{name} must be contiguous")


def _check_layer(cache: KVCache, layer: int) -> None:
    if not 0 <= layer < cache.layout.num_layers:
        raise ValueError(f"layer must be from 0 to {cache.layout.num_layers - 1}, not {layer}")


def _check_heads(name: str, tensor: torch.Tensor, cache: KVCache, batch: AttentionBatch) -> None:
    layout = cache.layout
    if tensor.dim() != 3 or tensor.shape[0] != batch.num_tokens or tensor.shape[2] != layout.head_dim:
        expected = f"[{batch.num_tokens}, H, {layout.head_dim}]"
        raise ValueError(f"{name} must have shape {expected}, not {list(tensor.shape)}")
    if tensor.stride(2) != 1 or (tensor.stride(1) != layout.head_dim and tensor.shape[1] > 1):
        raise ValueError(f"{name} must be contiguous within a token; its strides are {tensor.stride()}")
    if tensor.dtype != layout.dtype and (layout.dtype != torch.float8_e4m3fn or tensor.dtype not in FLOAT_DTYPES):
        allowed = FLOAT_DTYPES if layout.dtype == torch.float8_e4m3fn else (layout.dtype,)
        raise ValueError(f"{name} must be {_any_of(allowed)}, not {tensor.dtype}")
    if tensor.device != cache.device or batch.context_lens.device != cache.device:
        raise ValueError(f"{name} and the batch must be on {cache.device}, where the cache is")


def _any_of(dtypes: tuple[torch.dtype, ...]) -> str:
    return " or ".join(map(str, dtypes))
