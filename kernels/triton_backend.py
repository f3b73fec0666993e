"""The GPU backend: the Triton kernels of the neighbouring files as one module."""

from __future__ import annotations

from kernels.contract import CacheLayout
from kernels.reference import decoder_layers, quantized_linear
from kernels.triton_attention import paged_attention
from kernels.triton_cache import copy_blocks, rotary_write_kv, write_kv
from kernels.triton_elementwise import rms_norm, silu_and_mul

__all__ = [
    "copy_blocks",
    "decoder_layers",
    "name",
    "packed",
    "paged_attention",
    "quantized_linear",
    "rms_norm",
    "rotary_write_kv",
    "silu_and_mul",
    "supports",
    "write_kv",
]

name = "triton"
packed = False


def supports(layout: CacheLayout) -> bool:
    return True
