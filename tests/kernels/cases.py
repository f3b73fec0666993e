"""Ragged batches over a shuffled cache, and the dense attention that every backend is held against."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from kernels import AttentionBatch, CacheLayout, KVCache, paged_attention, write_kv
from kernels.contract import Backend

TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 1e-3}
"""Allowed difference from dense float64 attention, absolute plus relative; all numbers are drawn with deviation 1."""


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

    @property
    def layout(self) -> CacheLayout:
        return CacheLayout(2, self.num_kv_heads, self.head_dim, self.block_size, self.cache_dtype or self.dtype)

    @property
    def options(self) -> dict[str, float | int | None]:
        return {"scale": self.head_dim**-0.5, "sliding_window": self.sliding_window, "soft_cap": self.soft_cap}

    def __str__(self) -> str:
        rows = " ".join(f"{query_len}/{context_len}" for query_len, context_len in self.rows) or "empty"
        heads = f"{self.num_heads}/{self.num_kv_heads}x{self.head_dim}"
        return f"{rows} heads {heads} block {self.block_size} window {self.sliding_window} cap {self.soft_cap}"


GRID = (
    Case(rows=()),
    Case(rows=((1, 1), (1, 15), (1, 16), (1, 17))),
    Case(rows=((1, 127), (1, 128), (1, 129), (1, 1), (1, 300))),
    Case(rows=((5, 5), (16, 33), (1, 40), (0, 7), (17, 17))),
    Case(rows=((20, 50), (1, 33), (3, 200)), sliding_window=9),
    Case(rows=((3, 50), (1, 20)), soft_cap=2.0),
    Case(rows=((7, 31), (1, 90)), num_heads=2, num_kv_heads=2, head_dim=80, block_size=8),
    Case(rows=((2, 33), (1, 64)), num_heads=8, num_kv_heads=1, head_dim=96, block_size=32),
    Case(rows=((9, 40), (1, 17)), num_heads=4, num_kv_heads=4, head_dim=32, sliding_window=16, soft_cap=30.0),
    Case(rows=((4, 21), (1, 1)), num_heads=2, num_kv_heads=1, head_dim=256, block_size=24),
    Case(rows=((2, 40), (1, 130)), num_heads=7, num_kv_heads=1, head_dim=128, block_size=256),
)

LONG = Case(rows=((1, 3001), (70, 1500), (1, 9)), num_heads=9, num_kv_heads=3)


class Scene:
    """A case with numbers: the whole history of each row, its blocks, and the batch of its last tokens."""

    def __init__(self, case: Case, device: str = "cpu", seed: int = 0) -> None:
        self.case, self.device = case, device
        generator = torch.Generator().manual_seed(seed)

        def draw(num_tokens: int, num_heads: int) -> torch.Tensor:
            return torch.randn(num_tokens, num_heads, case.head_dim, generator=generator).to(device, case.dtype)

        self.query = draw(sum(query_len for query_len, _ in case.rows), case.num_heads)
        self.keys = [draw(context_len, case.num_kv_heads) for _, context_len in case.rows]
        self.values = [draw(context_len, case.num_kv_heads) for _, context_len in case.rows]
        sizes = [-(-context_len // case.block_size) for _, context_len in case.rows]
        self.num_blocks = sum(sizes) + 1
        block_ids = torch.randperm(self.num_blocks, generator=generator).split([*sizes, 1])
        self.tables = [block_ids[row].tolist() for row in range(len(sizes))]

    def batch(self, *, whole_history: bool = False) -> AttentionBatch:
        rows = [(c, c) for _, c in self.case.rows] if whole_history else self.case.rows
        width = max(map(len, self.tables), default=0)
        slots = []
        for (query_len, context_len), table in zip(rows, self.tables, strict=True):
            for position in range(context_len - query_len, context_len):
                block, offset = divmod(position, self.case.block_size)
                slots.append(table[block] * self.case.block_size + offset)
        starts = torch.tensor([0, *(query_len for query_len, _ in rows)], dtype=torch.int32)
        tables = torch.tensor([table + [0] * (width - len(table)) for table in self.tables], dtype=torch.int32)
        return AttentionBatch(
            query_starts=starts.cumsum(0, dtype=torch.int32).to(self.device),
            context_lens=torch.tensor([c for _, c in rows], dtype=torch.int32, device=self.device),
            block_tables=tables.reshape(len(rows), width).to(self.device),
            slot_mapping=torch.tensor(slots, dtype=torch.int64, device=self.device),
            max_query_len=max([q for q, _ in rows], default=0),
            max_context_len=max([c for _, c in rows], default=0),
        )

    def empty_cache(self, backend: Backend) -> KVCache:
        """A cache full of NaN: what was never written must never be read."""
        cache = KVCache.allocate(self.case.layout, self.num_blocks, self.device, backend=backend)
        cache.storage.view(torch.uint8).fill_(0xFF)
        return cache

    def filled_cache(self, backend: Backend) -> KVCache:
        cache = self.empty_cache(backend)
        if self.keys:
            write_kv(cache, 1, torch.cat(self.keys), torch.cat(self.values), self.batch(whole_history=True))
        return cache

    def attend(self, backend: Backend) -> torch.Tensor:
        return paged_attention(self.query, self.filled_cache(backend), 1, self.batch(), **self.case.options)

    def dense(self) -> torch.Tensor:
        """The answer in float64, straight from the definition."""
        case, answers, start = self.case, [], 0
        for (query_len, context_len), keys, values in zip(case.rows, self.keys, self.values, strict=True):
            queries = self.query[start : start + query_len].cpu().double()
            start += query_len
            group = case.num_heads // case.num_kv_heads
            keys, values = (x.cpu().double().repeat_interleave(group, dim=1) for x in (keys, values))
            scores = torch.einsum("qhd,chd->hqc", queries, keys) * case.head_dim**-0.5
            if case.soft_cap is not None:
                scores = case.soft_cap * torch.tanh(scores / case.soft_cap)
            age = torch.arange(context_len - query_len, context_len)[:, None] - torch.arange(context_len)
            seen = (age >= 0) & (age < (case.sliding_window or context_len))
            weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
            answers.append(torch.einsum("hqc,chd->qhd", weights, values))
        return torch.cat([torch.empty(0, case.num_heads, case.head_dim, dtype=torch.float64), *answers])


def assert_attends(case: Case, backend: Backend, device: str = "cpu") -> None:
    """The backend's attention is dense attention, within the tolerance of the case's dtype."""
    scene, tolerance = Scene(case, device), TOLERANCES[case.dtype]
    torch.testing.assert_close(scene.attend(backend).cpu().double(), scene.dense(), atol=tolerance, rtol=tolerance)


def with_dtype(case: Case, dtype: torch.dtype) -> Case:
    return replace(case, dtype=dtype)
