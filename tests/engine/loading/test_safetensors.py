"""Reading safetensors files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.errors import ModelLoadError
from engine.loading.safetensors import read_safetensors


def test_tensors_of_all_files_are_there(tmp_path: Path) -> None:
    tensors = {"a": torch.randn(2, 3), "b": torch.randn(4).to(torch.bfloat16)}
    for name, tensor in tensors.items():
        save_file({name: tensor}, tmp_path / f"{name}.safetensors")
    read = read_safetensors([tmp_path / "a.safetensors", tmp_path / "b.safetensors"])
    assert read.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(read[name](), tensor)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    save_file({"a": torch.randn(20, 30)}, path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelLoadError, match=r"a\.safetensors is not a readable safetensors file"):
        read_safetensors([path])
