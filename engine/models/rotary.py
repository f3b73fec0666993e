"""Rotary position embedding: the angle of each pair of numbers at each position (Su et al., RoFormer, 2021)."""

from __future__ import annotations

from typing import Any

import torch
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from engine.errors import ModelLoadError

SUPPORTED_TYPES = ("default", "linear", "dynamic", "yarn", "llama3", "longrope")


class Rotary:
    """Cosines and sines for the positions of one step, computed once and used by all layers.

    Positions beyond the trained length: "dynamic" stretches the base by the position's own length, as generation token
    by token does, so that a token's keys depend on nothing but its position, and cached prefixes stay valid.
    "longrope" takes its long factors if ``max_model_len`` exceeds the trained length, for all positions alike.
    """

    def __init__(self, config: Any, max_model_len: int, device: torch.device) -> None:
        """``config`` is a transformers configuration with ``rope_parameters``."""
        parameters = config.rope_parameters
        self._type = parameters["rope_type"]
        if self._type not in SUPPORTED_TYPES:
            raise ModelLoadError(f"rope_type {self._type!r} is not supported; supported are {SUPPORTED_TYPES}")
        self._base = parameters["rope_theta"]
        self._factor = parameters.get("factor", 1.0)
        self._trained_len = config.max_position_embeddings
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self._dim = int(head_dim * parameters.get("partial_rotary_factor", 1.0))
        self._exponents = torch.arange(0, self._dim, 2, dtype=torch.float32, device=device) / self._dim
        self._frequencies, self._scale = self._init_frequencies(config, max_model_len)

    def _init_frequencies(self, config: Any, max_model_len: int) -> tuple[torch.Tensor, float]:
        if self._type in ("default", "dynamic"):
            return 1.0 / self._base**self._exponents, 1.0
        frequencies, scale = ROPE_INIT_FUNCTIONS[self._type](config, self._exponents.device, seq_len=max_model_len)
        return frequencies.float(), scale

    def divide_frequencies(self, factors: torch.Tensor) -> None:
        """Apply the per-frequency factors [R / 2] that a GGUF file stores instead of rope parameters."""
        self._frequencies = self._frequencies / factors.to(self._frequencies)

    def __call__(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions [T] -> cos and sin [T, R / 2] float32, R the rotated numbers of a head."""
        angles = positions.float()[:, None] * self._frequencies_at(positions)
        if self._scale == 1.0:
            return angles.cos(), angles.sin()
        return angles.cos() * self._scale, angles.sin() * self._scale

    def _frequencies_at(self, positions: torch.Tensor) -> torch.Tensor:
        if self._type != "dynamic":
            return self._frequencies
        lengths = (positions + 1).clamp(min=self._trained_len).float()
        stretch = self._factor * lengths / self._trained_len - (self._factor - 1)
        bases = self._base * stretch ** (self._dim / (self._dim - 2))
        return torch.pow(bases[:, None], -self._exponents)
