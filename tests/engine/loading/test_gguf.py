"""Reading GGUF files, whole ones and broken ones, against the ``gguf`` package."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter
from gguf.quants import dequantize

from engine.errors import ModelLoadError
from engine.loading.gguf import GGUFFile
from engine.loading.sources import find_model
from tests.engine.loading.test_dequantize import random_rows

FORMATS = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A file with a tensor of each format and a value of each type."""
    path = tmp_path / "sample.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint8("u8", 255)
    writer.add_int8("i8", -1)
    writer.add_uint16("u16", 65535)
    writer.add_int16("i16", -2)
    writer.add_uint32("u32", 2**32 - 1)
    writer.add_int32("i32", -3)
    writer.add_uint64("u64", 2**63)
    writer.add_int64("i64", -4)
    writer.add_float32("f32", 0.5)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_string("text", "ďábelské 🌶")
    writer.add_array("numbers", [1, 2, 3])
    writer.add_array("texts", ["a", "", "é"])
    for name in FORMATS:
        kind = GGMLQuantizationType[name]
        writer.add_tensor(name, random_rows(name, num_rows=3, num_blocks=2), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_metadata_of_every_type(sample: Path) -> None:
    metadata = GGUFFile(sample).metadata
    assert {key: metadata[key] for key in ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64")} == {
        "u8": 255, "i8": -1, "u16": 65535, "i16": -2, "u32": 2**32 - 1, "i32": -3, "u64": 2**63, "i64": -4,
    }  # fmt: skip
    assert (metadata["f32"], metadata["f64"], metadata["yes"]) == (0.5, 0.1, True)
    assert metadata["text"] == "ďábelské 🌶"
    assert list(metadata["numbers"]) == [1, 2, 3]
    assert metadata["texts"] == ["a", "", "é"]


def test_tensors_of_every_format(sample: Path) -> None:
    ours = GGUFFile(sample).tensors
    theirs = {tensor.name: tensor for tensor in GGUFReader(sample).tensors}
    assert ours.keys() == theirs.keys() == set(FORMATS)
    for name, tensor in theirs.items():
        expected = torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32))
        torch.testing.assert_close(ours[name].dequantize(torch.float32), expected, rtol=0, atol=1e-6, equal_nan=True)


def test_the_demo_model_is_read_as_the_gguf_package_reads_it() -> None:
    path = find_model("smollm2").gguf
    assert path is not None
    ours = GGUFFile(path)
    assert ours.metadata["general.architecture"] == "llama"
    assert len(ours.metadata["tokenizer.ggml.tokens"]) == 49152
    tensors = ours.tensors
    assert len(tensors) == 272
    assert tensors["token_embd.weight"].shape == (49152, 576)
    assert tensors["blk.29.attn_k.weight"].format == "Q4_1"


def test_a_file_cut_short_is_refused_wherever_the_cut_is(sample: Path) -> None:
    whole = sample.read_bytes()
    for size in [*range(0, 700, 13), len(whole) - 40]:
        sample.write_bytes(whole[:size])
        with pytest.raises(ModelLoadError, match=r"sample\.gguf"):
            GGUFFile(sample).tensors  # noqa: B018


def test_damage_is_refused_or_read_but_nothing_else_happens(sample: Path) -> None:
    whole = sample.read_bytes()
    rng = random.Random(5)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(3):
            damaged[rng.randrange(1000)] = rng.randrange(256)
        sample.write_bytes(damaged)
        try:
            for tensor in GGUFFile(sample).tensors.values():
                tensor.dequantize(torch.float32)
        except ModelLoadError as error:
            assert "sample.gguf" in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (b"", "cannot mmap"),
        (b"PK\x03\x04" + bytes(60), "does not start with GGUF"),
        (b"GGUF\x01" + bytes(60), "version is 1"),
    ],
)
def test_other_files_are_refused_with_the_reason(start: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(start)
    with pytest.raises(ModelLoadError, match=words):
        GGUFFile(path)


def test_one_part_of_a_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model-00001-of-00003.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_uint16("split.count", 3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelLoadError, match="is one of 3 parts"):
        GGUFFile(path)


def test_a_format_we_cannot_read_is_named_with_those_we_can(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_tensor("w", np.zeros((2, 84), dtype=np.uint8), raw_dtype=GGMLQuantizationType.Q2_K)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(ModelLoadError, match=r"tensor w is stored as type 10; readable are BF16, .*Q6_K"):
        GGUFFile(path).tensors  # noqa: B018
