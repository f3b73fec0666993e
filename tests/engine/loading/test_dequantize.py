"""Block formats against the ``gguf`` package's own decoder."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize as reference_dequantize

from engine.loading.dequantize import FORMATS, dequantize

SCALES_AT = {
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
}


def random_rows(name: str, num_rows: int, num_blocks: int) -> np.ndarray:
    """Any bytes are a valid block, but a scale must be a finite number."""
    rng = np.random.default_rng(7)
    form = next(form for form in FORMATS.values() if form.name == name)
    blocks = rng.integers(0, 256, (num_rows, num_blocks, form.block_bytes), dtype=np.uint8)
    for start in SCALES_AT.get(name, []):
        scales = rng.normal(0, 0.1, (num_rows, num_blocks, 1)).astype(np.float16)
        blocks[:, :, start : start + 2] = scales.view(np.uint8)
    return blocks.reshape(num_rows, -1)


@pytest.mark.parametrize("name", sorted(SCALES_AT))
def test_block_formats_decode_exactly_as_the_reference(name: str) -> None:
    rows = random_rows(name, num_rows=6, num_blocks=3)
    expected = reference_dequantize(rows, GGMLQuantizationType[name])
    actual = dequantize(torch.from_numpy(rows), name, torch.float32)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, torch.from_numpy(expected), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("name", "dtype"), [("F32", torch.float32), ("F16", torch.float16), ("BF16", torch.bfloat16)])
def test_plain_floats_are_read_as_they_are(name: str, dtype: torch.dtype) -> None:
    values = torch.randn(3, 5).to(dtype)
    padded = torch.cat((torch.zeros(1, dtype=torch.uint8), values.view(torch.uint8).flatten()))  # odd address
    rows = padded[1:].view(3, -1)
    assert torch.equal(dequantize(rows, name, dtype), values)


def test_type_ids_are_those_of_the_format() -> None:
    assert {type_id: form.name for type_id, form in FORMATS.items()} == {
        type_id: GGMLQuantizationType(type_id).name for type_id in FORMATS
    }
