"""Weights of 4 and 8 bits in groups of 32 along their inputs: how they are made, and how they lie in memory.

N outputs, K inputs, G = K / 32 groups. At 4 bits a value is level * scale + minimum with levels from 0 to 15; at 8 bits
it is (level - 128) * scale with levels from 0 to 255. Scales and minima are float16, one for each output and group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch.nn import functional

GROUP = 32
TILE = 32
"""Outputs that are computed together; see cpu_linear.cpp."""

ZERO = 128
"""Level of the value 0 at 8 bits."""

Bits = Literal[4, 8]


@dataclass(frozen=True, slots=True, eq=False)
class GroupedWeight:
    """A weight as read from a file or made from floats: levels [N, K] uint8, scales and minima [N, G] float16.

    Minima belong to 4 bits; None says 8 bits.

    Raises:
        ValueError: shapes or dtypes do not fit each other.
    """

    levels: torch.Tensor
    scales: torch.Tensor
    minima: torch.Tensor | None = None

    def __post_init__(self) -> None:
        if self.levels.dim() != 2 or self.levels.dtype != torch.uint8 or self.levels.shape[1] % GROUP:
            raise ValueError(f"levels must be [N, K] uint8, K a multiple of {GROUP}, not {_form(self.levels)}")
        shape = (self.levels.shape[0], self.levels.shape[1] // GROUP)
        for name, numbers in (("scales", self.scales), ("minima", self.minima)):
            if numbers is not None and (numbers.shape != shape or numbers.dtype != torch.float16):
                raise ValueError(f"{name} must be {list(shape)} float16, not {_form(numbers)}")

    @property
    def bits(self) -> Bits:
        return 8 if self.minima is None else 4

    @property
    def shape(self) -> torch.Size:
        return self.levels.shape

    def dequantize(self) -> torch.Tensor:
        """The values, [N, K] float32."""
        levels = self.levels.view(*self.scales.shape, GROUP).float()
        return _values(levels, self.scales, self.minima).view(self.levels.shape)


def join(weights: Sequence[GroupedWeight]) -> GroupedWeight:
    """The outputs of several weights of equal bits and inputs, one after the other."""
    minima = [weight.minima for weight in weights if weight.minima is not None]
    return GroupedWeight(
        torch.cat([weight.levels for weight in weights]),
        torch.cat([weight.scales for weight in weights]),
        torch.cat(minima) if minima else None,
    )


def quantize(weight: torch.Tensor, bits: Bits) -> GroupedWeight:
    """The nearest levels for a weight [N, K] of floats: each group's range is cut into equal steps.

    At 4 bits from its smallest to its largest value, at 8 bits symmetric around 0. Levels are chosen for the scales
    and minima as they are stored, rounded to float16.
    """
    groups = weight.float().view(weight.shape[0], -1, GROUP)
    if bits == 8:
        scales = (groups.abs().amax(dim=2) / 127).half()
        return GroupedWeight(_levels(groups, scales, None).view(weight.shape), scales)
    smallest, largest = groups.aminmax(dim=2)
    minima = smallest.half()
    scales = ((largest - minima.float()) / 15).half()
    return GroupedWeight(_levels(groups, scales, minima).view(weight.shape), scales, minima)


def _levels(groups: torch.Tensor, scales: torch.Tensor, minima: torch.Tensor | None) -> torch.Tensor:
    steps = scales.float().unsqueeze(2)
    steps = torch.where(steps == 0, 1.0, steps)  # all values of the group are equal
    if minima is None:
        return (torch.round(groups / steps) + ZERO).clamp(1, 255).byte()
    return torch.round((groups - minima.float().unsqueeze(2)) / steps).clamp(0, 15).byte()


@dataclass(frozen=True, slots=True, eq=False)
class PackedWeight:
    """A weight in the order in which cpu_linear.cpp multiplies it.

    Attributes:
        num_outputs: N; the last tile is filled up with zeros.
        levels: [ceil(N / 32), G, 128 * bits] uint8. A group of a tile holds, for each four inputs, the bytes of its 32
            outputs side by side; at 4 bits the high halves of the bytes hold the four inputs that follow.
        scales, minima: [ceil(N / 32), G, 32] float16.
    """

    num_outputs: int
    levels: torch.Tensor
    scales: torch.Tensor
    minima: torch.Tensor | None

    @classmethod
    def pack(cls, weight: GroupedWeight) -> PackedWeight:
        num_outputs = weight.levels.shape[0]
        missing = -num_outputs % TILE
        levels = functional.pad(weight.levels, (0, 0, 0, missing))
        levels = levels.view(-1, TILE, weight.scales.shape[1], 8, 4).permute(0, 2, 3, 1, 4)
        if weight.bits == 4:
            levels = levels[:, :, 0::2] | (levels[:, :, 1::2] << 4)
        scales, minima = (_in_tiles(numbers, missing) for numbers in (weight.scales, weight.minima))
        assert scales is not None
        return cls(num_outputs, levels.reshape(*scales.shape[:2], -1).contiguous(), scales, minima)

    @property
    def bits(self) -> Bits:
        return 8 if self.minima is None else 4

    @property
    def num_inputs(self) -> int:
        return self.scales.shape[1] * GROUP

    def rows(self, outputs: torch.Tensor) -> torch.Tensor:
        """The values of some outputs [T] int64: [T, K] float32."""
        tiles, places = outputs // TILE, outputs % TILE
        num_tiles, num_groups, _ = self.scales.shape
        levels = self.levels.view(num_tiles, num_groups, self.bits, TILE, 4)[tiles, :, :, places]
        if self.bits == 4:
            levels = torch.stack((levels & 0x0F, levels >> 4), dim=3)
        minima = None if self.minima is None else self.minima[tiles, :, places]
        numbers = levels.view(len(outputs), num_groups, GROUP).float()
        return _values(numbers, self.scales[tiles, :, places], minima).view(len(outputs), -1)


def _values(levels: torch.Tensor, scales: torch.Tensor, minima: torch.Tensor | None) -> torch.Tensor:
    """Levels [.., G, 32] float32 -> values of the same shape."""
    scales = scales.float().unsqueeze(-1)
    if minima is None:
        return (levels - ZERO) * scales
    return torch.addcmul(minima.float().unsqueeze(-1), levels, scales)


def _in_tiles(numbers: torch.Tensor | None, missing: int) -> torch.Tensor | None:
    """[N, G] -> [tiles, G, 32]."""
    if numbers is None:
        return None
    padded = functional.pad(numbers, (0, 0, 0, missing))
    return padded.view(-1, TILE, numbers.shape[1]).transpose(1, 2).contiguous()


def _form(tensor: torch.Tensor) -> str:
    return f"{list(tensor.shape)} {tensor.dtype}"
