"""Ragged batches over a shuffled cache, and the dense float32 attention that every backend is held against."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from kernels import AttentionBatch, CacheLayout, KVCache, paged_attention, write_kv
from kernels.contract import Backend


@dataclass(frozen=True)
class Case:
    """Rows of (query length, context length) and the shape of the model's heads."""

    rows: tuple[tuple[int, int], ...]
    num_heads: int = 6
    num_kv_heads: int = 2
    head_dim: int = 64
    block_size: int = 16
    dtype: torch.dtype = torch.float32
    cache_dtype: torch.dtype | None = None
    sliding_window: int | None = None
    soft_cap: float | None = None
    scale: float | None = None
    seed: int = 0

    @property
    def layout(self) -> CacheLayout:
        return CacheLayout(2, self.num_kv_heads, self.head_dim, self.block_size, self.cache_dtype or self.dtype)

    @property
    def options(self) -> dict[str, float | int | None]:
        scale = self.scale or self.head_dim**-0.5
        return {"scale": scale, "sliding_window": self.sliding_window, "soft_cap": self.soft_cap}


@dataclass
class Scene:
    """A case with numbers: the whole history of each row, its blocks, and the batch of its last tokens."""

    case: Case
    device: str = "cpu"
    queries: list[torch.Tensor] = field(init=False)
    keys: list[torch.Tensor] = field(init=False)
    values: list[torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        case, generator = self.case, torch.Generator().manual_seed(self.case.seed)

        def draw(tokens: int, heads: int) -> torch.Tensor:
            numbers = torch.randn(tokens, heads, case.head_dim, generator=generator)
            return numbers.to(case.dtype).to(self.device)

        self.queries = [draw(query_len, case.num_heads) for query_len, _ in case.rows]
        self.keys = [draw(context_len, case.num_kv_heads) for _, context_len in case.rows]
        self.values = [draw(context_len, case.num_kv_heads) for _, context_len in case.rows]
        self.num_blocks = 1 + sum(self._blocks_of(context_len) for _, context_len in case.rows)
        self._free = torch.randperm(self.num_blocks, generator=generator).tolist()
        self.tables = [[self._free.pop() for _ in range(self._blocks_of(length))] for _, length in case.rows]

    def _blocks_of(self, context_len: int) -> int:
        return -(-context_len // self.case.block_size)

    def batch(self, lengths: list[tuple[int, int]] | None = None) -> AttentionBatch:
        """The batch of rows of (query length, context length); by default the case's own."""
        rows = list(self.case.rows) if lengths is None else lengths
        width = max([self._blocks_of(context_len) for _, context_len in rows], default=0)
        tables = [(table + [0] * width)[:width] for table in self.tables]
        starts = [0]
        slots = []
        for (query_len, context_len), table in zip(rows, self.tables, strict=True):
            starts.append(starts[-1] + query_len)
            positions = range(context_len - query_len, context_len)
            slots += [
                table[p // self.case.block_size] * self.case.block_size + p % self.case.block_size for p in positions
            ]
        return AttentionBatch(
            query_starts=torch.tensor(starts, dtype=torch.int32, device=self.device),
            context_lens=torch.tensor([c for _, c in rows], dtype=torch.int32, device=self.device),
            block_tables=torch.tensor(tables, dtype=torch.int32, device=self.device).reshape(len(rows), width),
            slot_mapping=torch.tensor(slots, dtype=torch.int64, device=self.device),
            max_query_len=max([q for q, _ in rows], default=0),
            max_context_len=max([c for _, c in rows], default=0),
        )

    def filled_cache(self, backend: Backend) -> KVCache:
        """A cache full of NaN but for the history: what was never written must never be read."""
        cache = KVCache.allocate(self.case.layout, self.num_blocks, self.device, backend=backend)
        cache.storage.view(torch.uint8).fill_(0xFF)
        history = [(context_len, context_len) for _, context_len in self.case.rows]
        if sum(length for length, _ in history):
            write_kv(cache, 1, torch.cat(self.keys), torch.cat(self.values), self.batch(history))
        return cache

    def attend(self, backend: Backend) -> torch.Tensor:
        return paged_attention(self.query, self.filled_cache(backend), 1, self.batch(), **self.case.options)

    @property
    def query(self) -> torch.Tensor:
        empty = torch.empty(0, self.case.num_heads, self.case.head_dim, dtype=self.case.dtype, device=self.device)
        return torch.cat([empty, *self.queries])

    def dense(self) -> torch.Tensor:
        """The answer in float64, straight from the definition, one query at a time over repeated heads."""
        answers = [torch.empty(0, self.case.num_heads, self.case.head_dim, dtype=torch.float64)]
        for row, (query_len, context_len) in enumerate(self.case.rows):
            group = self.case.num_heads // self.case.num_kv_heads
            keys = self.keys[row].cpu().double().repeat_interleave(group, dim=1)
            values = self.values[row].cpu().double().repeat_interleave(group, dim=1)
            for index in range(query_len):
                position = context_len - query_len + index
                first = 0 if self.case.sliding_window is None else max(0, position + 1 - self.case.sliding_window)
                seen = slice(first, position + 1)
                scores = torch.einsum("hd,chd->hc", self.queries[row][index].cpu().double(), keys[seen])
                scores = scores * (self.case.scale or self.case.head_dim**-0.5)
                if self.case.soft_cap is not None:
                    scores = self.case.soft_cap * torch.tanh(scores / self.case.soft_cap)
                answers.append(torch.einsum("hc,chd->hd", scores.softmax(-1), values[seen])[None])
        return torch.cat(answers)
