"""The block formats of GGUF weights, turned into floats.

A row of a weight matrix is stored as blocks of 32 or 256 values with shared scales. Every function below takes the
blocks of all rows, [N, block_bytes] uint8, and returns their values, [N, block_values] float32.
Layouts: https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-common.h
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch


class Format(NamedTuple):
    """How one kind of block stores its values."""

    name: str
    block_values: int
    block_bytes: int


FORMATS = {
    0: Format("F32", 1, 4),
    1: Format("F16", 1, 2),
    2: Format("Q4_0", 32, 18),
    3: Format("Q4_1", 32, 20),
    6: Format("Q5_0", 32, 22),
    7: Format("Q5_1", 32, 24),
    8: Format("Q8_0", 32, 34),
    12: Format("Q4_K", 256, 144),
    13: Format("Q5_K", 256, 176),
    14: Format("Q6_K", 256, 210),
    30: Format("BF16", 1, 2),
}
"""By the type id that the file stores."""

CHUNK_BLOCKS = 8192
"""Blocks converted at once: few enough that what lies between the stored and the final values stays in the cache."""

FLOATS = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def dequantize(rows: torch.Tensor, name: str, dtype: torch.dtype) -> torch.Tensor:
    """Values of stored rows.

    Args:
        rows: [.., row_bytes] uint8.
        name: of the format.

    Returns:
        [.., row_values] of the dtype.
    """
    if name in FLOATS:
        # The file need not align a tensor to its value size in memory; a copy does.
        return rows.clone().view(FLOATS[name]).to(dtype)
    form = next(form for form in FORMATS.values() if form.name == name)
    blocks = rows.reshape(-1, form.block_bytes)
    values = torch.empty((blocks.shape[0], form.block_values), dtype=dtype)
    for start in range(0, blocks.shape[0], CHUNK_BLOCKS):
        chunk = slice(start, start + CHUNK_BLOCKS)
        values[chunk] = BLOCKS[name](blocks[chunk])
    return values.view(*rows.shape[:-1], -1)


def halves(blocks: torch.Tensor, start: int, count: int = 1) -> torch.Tensor:
    """``count`` float16 numbers at byte ``start`` of each block: [N, count] float32."""
    return blocks[:, start : start + 2 * count].contiguous().view(torch.float16).float()


def nibbles(packed: torch.Tensor) -> torch.Tensor:
    """All low halves, then all high halves: [.., B] -> [.., 2 B]."""
    return torch.cat((packed & 0x0F, packed >> 4), dim=-1)


def _q4_0(blocks: torch.Tensor) -> torch.Tensor:
    return (nibbles(blocks[:, 2:]).float() - 8) * halves(blocks, 0)


def _q4_1(blocks: torch.Tensor) -> torch.Tensor:
    scale, minimum = halves(blocks, 0, 2).split(1, dim=1)
    return torch.addcmul(minimum, nibbles(blocks[:, 4:]).float(), scale)


def _fifth_bits(blocks: torch.Tensor, start: int) -> torch.Tensor:
    """The 32 bits of the four bytes at ``start``, lowest first, each worth 16."""
    bits = blocks[:, start : start + 4].unsqueeze(2) >> torch.arange(8, dtype=torch.uint8)
    return ((bits & 1) << 4).view(-1, 32)


def _q5_0(blocks: torch.Tensor) -> torch.Tensor:
    return ((nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)).float() - 16) * halves(blocks, 0)


def _q5_1(blocks: torch.Tensor) -> torch.Tensor:
    scale, minimum = halves(blocks, 0, 2).split(1, dim=1)
    return torch.addcmul(minimum, (nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)).float(), scale)


def _q8_0(blocks: torch.Tensor) -> torch.Tensor:
    return blocks[:, 2:].contiguous().view(torch.int8).float() * halves(blocks, 0)


def scales_and_minima(blocks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The 8 scales and 8 minima of a K block, [N, 8, 1] each: 6 bits apiece, packed into bytes 4..15."""
    factor, minimum_factor = halves(blocks, 0, 2).split(1, dim=1)
    low, high, rest = blocks[:, 4:16].split(4, dim=1)
    scales = torch.cat((low & 63, (rest & 0x0F) | (low >> 6 << 4)), dim=1)
    minima = torch.cat((high & 63, (rest >> 4) | (high >> 6 << 4)), dim=1)
    return (scales * factor).unsqueeze(2), (minima * minimum_factor).unsqueeze(2)


def _q4_k(blocks: torch.Tensor) -> torch.Tensor:
    scales, minima = scales_and_minima(blocks)
    values = nibbles(blocks[:, 16:].view(-1, 4, 32)).view(-1, 8, 32)
    return (values.float() * scales - minima).view(-1, 256)


def _q5_k(blocks: torch.Tensor) -> torch.Tensor:
    scales, minima = scales_and_minima(blocks)
    low = nibbles(blocks[:, 48:].view(-1, 4, 32)).view(-1, 8, 32)
    # Bit i of the 32 high-bit bytes belongs to group i.
    shifts = torch.arange(8, dtype=torch.uint8).view(1, 8, 1)
    high = (blocks[:, 16:48].unsqueeze(1) >> shifts) & 1
    return ((low | (high << 4)).float() * scales - minima).view(-1, 256)


def _q6_k(blocks: torch.Tensor) -> torch.Tensor:
    low = nibbles(blocks[:, :128].view(-1, 2, 64)).view(-1, 8, 32)
    # Each of the 2 x 32 high bytes holds two bits for four groups.
    shifts = torch.tensor([0, 2, 4, 6], dtype=torch.uint8).view(1, 1, 4, 1)
    high = ((blocks[:, 128:192].view(-1, 2, 1, 32) >> shifts) & 3).view(-1, 8, 32)
    values = (low | (high << 4)).float() - 32
    scales = blocks[:, 192:208].contiguous().view(torch.int8).float() * halves(blocks, 208)
    return (values.view(-1, 16, 16) * scales.unsqueeze(2)).view(-1, 256)


BLOCKS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
