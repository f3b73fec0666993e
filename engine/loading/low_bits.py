"""The block formats of GGUF weights as grouped weights, without going through floats where the grouping is the same.

Q4_0, Q4_1 and Q8_0 keep every value exactly. Q4_K keeps its levels, with the products of its two scales rounded to
float16. Formats of 5 and 6 bits, which have no such form, are rounded to 8 bits.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from engine.loading.dequantize import dequantize, halves, nibbles, scales_and_minima
from kernels import Bits, GroupedWeight, quantize

ROUNDED = ("Q5_0", "Q5_1", "Q5_K", "Q6_K")


def stored_bits(name: str) -> Bits | None:
    """The bits in which the weights of a format are kept; None if that is not a low-bit one."""
    if name in ROUNDED or name == "Q8_0":
        return 8
    return 4 if name in READERS else None


def read_grouped(rows: torch.Tensor, name: str) -> GroupedWeight | None:
    """Stored rows [N, row_bytes] uint8 of a format; None if that is not a low-bit one."""
    if name in ROUNDED:
        return quantize(dequantize(rows, name, torch.float32), 8)
    if name not in READERS:
        return None
    block_bytes, read = READERS[name]
    levels, scales, minima = read(rows.reshape(-1, block_bytes))
    num_rows = rows.shape[0]
    return GroupedWeight(
        levels.view(num_rows, -1),
        scales.half().view(num_rows, -1),
        None if minima is None else minima.half().view(num_rows, -1),
    )


Groups = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]
"""Levels, scales and minima of blocks."""


def _q4_0(blocks: torch.Tensor) -> Groups:
    scales = halves(blocks, 0)
    return nibbles(blocks[:, 2:]), scales, scales * -8


def _q4_1(blocks: torch.Tensor) -> Groups:
    scales, minima = halves(blocks, 0, 2).split(1, dim=1)
    return nibbles(blocks[:, 4:]), scales, minima


def _q8_0(blocks: torch.Tensor) -> Groups:
    # Adding 128 to a signed byte flips its highest bit.
    return blocks[:, 2:] ^ 0x80, halves(blocks, 0), None


def _q4_k(blocks: torch.Tensor) -> Groups:
    scales, minima = scales_and_minima(blocks)
    return nibbles(blocks[:, 16:].view(-1, 4, 32)), scales, -minima


READERS: dict[str, tuple[int, Callable[[torch.Tensor], Groups]]] = {
    "Q4_0": (18, _q4_0),
    "Q4_1": (20, _q4_1),
    "Q8_0": (34, _q8_0),
    "Q4_K": (144, _q4_k),
}
"""By format: bytes of a block, and how to take it apart."""
