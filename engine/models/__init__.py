"""The models that can run: a lean family of our own, and an adapter for other decoders of transformers."""

from __future__ import annotations

from typing import Protocol

import torch

from kernels import AttentionBatch, CacheLayout, KVCache


class Model(Protocol):
    """A decoder whose keys and values live in a paged cache. T tokens of any mix of sequences go through at once."""

    def layout(self, block_size: int) -> CacheLayout:
        """Geometry of the cache that the model needs."""
        ...

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, batch: AttentionBatch, cache: KVCache
    ) -> torch.Tensor:
        """token_ids [T] and positions [T] int64 -> hidden states [T, H]; keys and values go to the cache."""
        ...

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states [S, H] -> logits [S, V] float32."""
        ...
