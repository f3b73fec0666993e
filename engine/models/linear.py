"""Linear layers and the embedding, in the fastest form that their weights and their device allow."""

from __future__ import annotations

import torch
from torch.nn import functional

import kernels
from engine.models.weights import Weights
from kernels import TILE, Bits, GroupedWeight, PackedWeight

ROWS_HINT = 32
"""Rows for which oneDNN lays the weight out. Measured for 1 to 256 rows: the choice makes no difference."""


class Linear:
    """x [T, I] -> x W^T + b [T, O].

    On a CPU the weight is reordered once into the blocks that oneDNN multiplies in, which ``functional.linear`` would
    do in every call: 1.2 to 2 times as fast in bfloat16, 2 to 5 times in float32.
    """

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.bias = bias
        self.is_packed = weight.device.type == "cpu" and _packs(weight.dtype)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight, ROWS_HINT) if self.is_packed else weight

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.is_packed:
            packed: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
            return packed
        return functional.linear(x, self.weight, self.bias)

    def gated(self, x: torch.Tensor) -> torch.Tensor:
        """silu(g) * v [T, O / 2] of the outputs g and v, the first and the second half."""
        return kernels.silu_and_mul(self(x))


class QuantizedLinear:
    """The same with a weight of 4 or 8 bits; the result has the dtype of x or the one given."""

    def __init__(
        self, weight: PackedWeight, bias: torch.Tensor | None = None, dtype: torch.dtype | None = None
    ) -> None:
        self.weight = weight
        self.bias = None if bias is None else bias.float()
        self.dtype = dtype

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return kernels.quantized_linear(x, self.weight, self.bias, dtype=self.dtype)

    def gated(self, x: torch.Tensor) -> torch.Tensor:
        if self.weight.num_outputs % (2 * TILE):
            return kernels.silu_and_mul(self(x))
        return kernels.quantized_linear(x, self.weight, self.bias, is_gated=True)


def _packs(dtype: torch.dtype) -> bool:
    """Whether oneDNN multiplies packed weights of the dtype on this CPU: bfloat16 only with AVX-512."""
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return dtype == torch.float32 and torch.backends.mkldnn.is_available()


AnyLinear = Linear | QuantizedLinear


def take_linear(weights: Weights, *names: str, min_bits: Bits = 4) -> AnyLinear:
    """One layer from the projections called ``names``, their outputs one after the other."""
    weight = weights.take_matrix(*(f"{name}.weight" for name in names), min_bits=min_bits)
    bias = None
    if any(f"{name}.bias" in weights for name in names):
        bias = torch.cat([weights.take(f"{name}.bias") for name in names])
    if isinstance(weight, GroupedWeight):
        return QuantizedLinear(PackedWeight.pack(weight), bias)
    return Linear(weight, bias)


class Embedding:
    """Token ids [T] -> vectors [T, H] from a table [V, H], which may have few bits."""

    def __init__(self, table: torch.Tensor | GroupedWeight, dtype: torch.dtype) -> None:
        self._table = PackedWeight.pack(table) if isinstance(table, GroupedWeight) else table
        self._dtype = dtype

    def __call__(self, token_ids: torch.Tensor) -> torch.Tensor:
        if isinstance(self._table, PackedWeight):
            return self._table.rows(token_ids).to(self._dtype)
        return functional.embedding(token_ids, self._table)

    def as_head(self) -> AnyLinear:
        """The layer that gives each id the product of its vector and the hidden state: a tied vocabulary head."""
        if isinstance(self._table, PackedWeight):
            return QuantizedLinear(self._table, dtype=torch.float32)
        return Linear(self._table)
