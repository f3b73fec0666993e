"""The models that can run: a lean family of our own, and which one a configuration asks for."""

from __future__ import annotations

from typing import Any, Protocol

import torch

from engine.errors import ModelLoadError
from engine.models.llama import LEAN_MODEL_TYPES, LlamaModel, is_llama_like
from engine.models.weights import Weights
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


def build_model(config: Any, weights: Weights, max_model_len: int) -> Model:
    """The model that a transformers configuration describes, holding these weights.

    Raises:
        ModelLoadError: we have no code for it, or the weights do not fit the configuration.
    """
    if is_llama_like(config):
        return LlamaModel(config, weights, max_model_len)
    known = ", ".join(sorted(LEAN_MODEL_TYPES))
    raise ModelLoadError(f"the architecture {config.model_type} is not supported; supported are {known}")
