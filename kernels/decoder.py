"""Decoder layers with weights of few bits, to be computed one after the other in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernels import cpu_calls
from kernels.quantized import PackedWeight


@dataclass(frozen=True, slots=True, eq=False)
class DecoderLayer:
    """x + attention(norm(x)), then x + down(silu(gate(norm(x))) * up(norm(x))).

    Attributes:
        attention_norm, feed_forward_norm: [H], in the dtype of the hidden states.
        qkv, out, gate_up, down: each a weight and its bias [N] float32 or None; queries, keys and values lie one after
            the other, as do gates and values.
        scale: factor on the products of queries and keys.
        eps: of both norms.
        sliding_window: a query sees only the last so many positions; None: all.
    """

    attention_norm: torch.Tensor
    feed_forward_norm: torch.Tensor
    qkv: tuple[PackedWeight, torch.Tensor | None]
    out: tuple[PackedWeight, torch.Tensor | None]
    gate_up: tuple[PackedWeight, torch.Tensor | None]
    down: tuple[PackedWeight, torch.Tensor | None]
    scale: float
    eps: float
    sliding_window: int | None = None


class DecoderStack:
    """All layers of a decoder, which have the same shapes. ``native`` is how the CPU's kernels read them."""

    def __init__(self, layers: Sequence[DecoderLayer]) -> None:
        self.layers = tuple(layers)
        self.native = (cpu_calls.DecoderLayerWeights * len(self.layers))(*map(_native, self.layers))


def _native(layer: DecoderLayer) -> cpu_calls.DecoderLayerWeights:
    return cpu_calls.DecoderLayerWeights(
        attention_norm=layer.attention_norm.data_ptr(),
        feed_forward_norm=layer.feed_forward_norm.data_ptr(),
        qkv=_native_linear(*layer.qkv),
        out=_native_linear(*layer.out),
        gate_up=_native_linear(*layer.gate_up),
        down=_native_linear(*layer.down),
        scale=layer.scale,
        eps=layer.eps,
        sliding_window=layer.sliding_window or 0,
    )


def _native_linear(weight: PackedWeight, bias: torch.Tensor | None) -> cpu_calls.LinearWeight:
    return cpu_calls.LinearWeight(
        levels=weight.levels.data_ptr(),
        scales=weight.scales.data_ptr(),
        minima=None if weight.minima is None else weight.minima.data_ptr(),
        bias=None if bias is None else bias.data_ptr(),
        num_inputs=weight.num_inputs,
        num_outputs=weight.num_outputs,
        bits=weight.bits,
    )
