"""Low-bit matrices as stored, against the values that the plain decoder reads."""

from __future__ import annotations

import pytest
import torch

from engine.loading.dequantize import dequantize
from engine.loading.low_bits import read_grouped
from tests.engine.loading.test_dequantize import random_rows


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q8_0"])
def test_formats_of_32_values_are_kept_exactly(name: str) -> None:
    rows = torch.from_numpy(random_rows(name, num_rows=6, num_blocks=4))
    grouped = read_grouped(rows, name)
    assert grouped is not None
    assert grouped.bits == (8 if name == "Q8_0" else 4)
    torch.testing.assert_close(grouped.dequantize(), dequantize(rows, name, torch.float32), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("name", "largest_error"), [("Q4_K", 1e-3), ("Q5_K", 1e-2), ("Q6_K", 1e-2)])
def test_formats_of_256_values_are_kept_closely(name: str, largest_error: float) -> None:
    rows = torch.from_numpy(random_rows(name, num_rows=6, num_blocks=2))
    grouped = read_grouped(rows, name)
    assert grouped is not None
    values = dequantize(rows, name, torch.float32)
    assert (grouped.dequantize() - values).norm() / values.norm() < largest_error


def test_plain_floats_are_not_low_bit() -> None:
    assert read_grouped(torch.zeros(2, 64, dtype=torch.uint8), "F16") is None
