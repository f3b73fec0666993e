"""Reading a GGUF file: its metadata, and its tensors as they are stored.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little-endian).
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

import torch

from engine.errors import ModelLoadError
from engine.loading.dequantize import FORMATS, dequantize
from engine.loading.low_bits import read_grouped
from kernels import GroupedWeight

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32

# Metadata value types with a fixed size, as struct codes; 8 is a string and 9 an array.
SCALAR_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


@dataclass(frozen=True, slots=True)
class GGUFTensor:
    """One tensor of the file. ``rows`` are its stored bytes, [.., row_bytes] uint8; ``shape`` counts its values."""

    format: str
    shape: tuple[int, ...]
    rows: torch.Tensor

    def dequantize(self, dtype: torch.dtype) -> torch.Tensor:
        return dequantize(self.rows, self.format, dtype).view(self.shape)

    def grouped(self) -> GroupedWeight | None:
        """A low-bit matrix as it is stored, for products with low-bit weights; None of anything else."""
        return read_grouped(self.rows, self.format) if len(self.shape) == 2 else None


class GGUFFile:
    """A parsed file. Tensors are views of the memory-mapped file; nothing is read before it is used.

    Raises:
        ModelLoadError: not a GGUF file, cut short, or with tensors stored in a format we cannot read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as header:
                self.metadata, self._entries, self._data_start = _Header(header).parse()
            self._check_whole()
        except (struct.error, ArithmeticError, LookupError, ValueError, MemoryError, RecursionError) as error:
            raise ModelLoadError(f"{path} is not a readable GGUF file: {error}") from error

    def _check_whole(self) -> None:
        parts = self.metadata.get("split.count", 1)
        if parts > 1:
            raise ModelLoadError(f"{self.path} is one of {parts} parts of a model; join them with llama-gguf-split")

    @cached_property
    def tensors(self) -> dict[str, GGUFTensor]:
        size = self.path.stat().st_size
        data = torch.from_file(str(self.path), shared=False, size=size, dtype=torch.uint8)
        return {name: self._tensor(data, name, *entry) for name, entry in self._entries.items()}

    def _tensor(self, data: torch.Tensor, name: str, shape: tuple[int, ...], type_id: int, offset: int) -> GGUFTensor:
        stored = FORMATS.get(type_id)
        if stored is None:
            known = ", ".join(sorted(form.name for form in FORMATS.values()))
            raise ModelLoadError(f"{self.path}: tensor {name} is stored as type {type_id}; readable are {known}")
        if not shape or shape[-1] % stored.block_values:
            raise ModelLoadError(f"{self.path}: tensor {name} has shape {shape}, which {stored.name} cannot store")
        row_bytes = shape[-1] // stored.block_values * stored.block_bytes
        start = self._data_start + offset
        end = start + prod(shape[:-1]) * row_bytes
        if end > data.numel():
            raise ModelLoadError(f"{self.path} is cut short: tensor {name} ends at byte {end} of {data.numel()}")
        return GGUFTensor(stored.name, shape, data[start:end].view(*shape[:-1], row_bytes))


class _Header:
    """A cursor over everything before the tensor data."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def parse(self) -> tuple[dict[str, Any], dict[str, tuple[tuple[int, ...], int, int]], int]:
        """(metadata, {tensor name: (shape, type, offset)}, where the tensor data starts)."""
        if self._data[:4] != MAGIC:
            raise ValueError("it does not start with GGUF")
        self._at = 4
        version, num_tensors, num_values = self._unpack("IQQ")
        if version not in VERSIONS:
            raise ValueError(f"its version is {version}; readable are {VERSIONS}")
        metadata = {self._string(): self._value(*self._unpack("I")) for _ in range(num_values)}
        tensors = dict(self._tensor_entry() for _ in range(num_tensors))
        alignment = int(metadata.get("general.alignment", DEFAULT_ALIGNMENT))
        return metadata, tensors, -(-self._at // alignment) * alignment

    def _unpack(self, codes: str) -> tuple[Any, ...]:
        values = struct.unpack_from("<" + codes, self._data, self._at)
        self._at += struct.calcsize("<" + codes)
        return values

    def _string(self) -> str:
        (length,) = self._unpack("Q")
        start, self._at = self._at, self._at + length
        return self._data[start : self._at].decode("utf-8")

    def _value(self, kind: int) -> Any:
        if kind == STRING:
            return self._string()
        if kind != ARRAY:
            return self._unpack(SCALAR_CODES[kind])[0]
        element, count = self._unpack("IQ")
        if element in SCALAR_CODES:
            return self._unpack(f"{count}{SCALAR_CODES[element]}")
        return [self._value(element) for _ in range(count)]

    def _tensor_entry(self) -> tuple[str, tuple[tuple[int, ...], int, int]]:
        name = self._string()
        (num_dims,) = self._unpack("I")
        dims = self._unpack(f"{num_dims}Q")
        type_id, offset = self._unpack("IQ")
        # ggml counts the fastest-moving dimension first, torch last.
        return name, (tuple(reversed(dims)), type_id, offset)
