"""What is on the machine, and what it would take."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from engine.config import EngineConfig
from engine.loading.inventory import ModelNeeds, list_models
from tests.engine.loading.gguf_files import write_gguf
from tests.engine.models.tiny import load_tiny, make_tiny, save_tiny

CONFIG = EngineConfig(dtype="float32", device="cpu", block_size=8, num_blocks=100)


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_models_of_all_places_are_listed_with_their_needs(tmp_path: Path, hub_cache: Path) -> None:
    models = tmp_path / "models"
    theirs = save_tiny(models / "tiny", "llama")
    write_gguf(models / "tiny.gguf", theirs)
    save_tiny(models / "unfit", "bloom")
    (models / "notes").mkdir()
    cached = hub_cache / "models--owner--name" / "snapshots" / ("0" * 40)
    shutil.copytree(models / "tiny", cached)
    (hub_cache / "models--owner--name" / "refs").mkdir()
    (hub_cache / "models--owner--name" / "refs" / "main").write_text("0" * 40, "utf-8")

    found = {model.name: model for model in list_models(CONFIG, [models, tmp_path / "nowhere"])}
    tiny, gguf, unfit = (str(models / name) for name in ("tiny", "tiny.gguf", "unfit"))
    assert set(found) == {"smollm2", tiny, gguf, unfit, "owner/name"}
    num_weights = sum(parameter.numel() for parameter in theirs.parameters())
    expected = ModelNeeds(
        architecture="llama",
        weight_bytes=4 * num_weights,
        block_bytes=2 * 3 * 2 * 8 * 8 * 4,
        num_blocks=100,
        max_model_len=128,
        num_sessions=100 // 16,
    )
    for name in (tiny, gguf, "owner/name"):
        assert found[name].needs == expected
        assert found[name].problem is None
    assert found[unfit].needs is None
    assert "takes no attention implementation" in (found[unfit].problem or "")
    smollm2 = found["smollm2"].needs
    assert smollm2 is not None
    assert 500e6 < smollm2.weight_bytes < 600e6, "135 million float32 numbers"


def test_a_cached_model_that_is_not_whole_is_not_downloaded(hub_cache: Path) -> None:
    cached = hub_cache / "models--owner--name" / "snapshots" / ("0" * 40)
    cached.mkdir(parents=True)
    (cached / "config.json").write_text("{}", "utf-8")
    (hub_cache / "models--owner--name" / "refs").mkdir()
    (hub_cache / "models--owner--name" / "refs" / "main").write_text("0" * 40, "utf-8")
    (found,) = (model for model in list_models(CONFIG, []) if model.name == "owner/name")
    assert found.problem is not None
    assert r"neither model.safetensors nor" in found.problem


@pytest.mark.usefixtures("hub_cache")
@pytest.mark.parametrize("model_type", ["qwen3", "gpt2", "gemma2"])
def test_the_block_size_is_that_of_the_loaded_model(model_type: str, tmp_path: Path) -> None:
    path = tmp_path / "models" / "tiny"
    save_tiny(path, model_type, head_dim=16)
    (found,) = (model for model in list_models(CONFIG, [path.parent]) if model.name == str(path))
    assert found.needs is not None
    assert found.needs.block_bytes == load_tiny(path).model.layout(8).block_bytes


@pytest.mark.usefixtures("hub_cache")
@pytest.mark.parametrize("is_supported", [True, False])
def test_blocks_of_8_bits_are_smaller_or_a_problem(
    is_supported: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.sizing.supports", lambda device_type, layout: is_supported)
    path = tmp_path / "models" / "tiny"
    save_tiny(path, "llama")
    small = replace(CONFIG, kv_cache_dtype="fp8")
    usual, found = (
        next(model for model in list_models(config, [path.parent]) if model.name == str(path))
        for config in (CONFIG, small)
    )
    if is_supported:
        assert usual.needs is not None
        assert found.needs is not None
        assert usual.needs.block_bytes == 4 * found.needs.block_bytes
    else:
        assert found.problem == "kv_cache_dtype 'fp8' needs a GPU; the kernels of this cpu cannot read it"


@pytest.mark.usefixtures("hub_cache")
def test_low_bit_weights_are_counted_as_they_are_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.loading.inventory.multiplies_low_bits", lambda device: True)
    theirs = make_tiny("llama", intermediate_size=64)
    path = tmp_path / "tiny.gguf"
    write_gguf(path, theirs, "Q4_1")
    sizes = [parameter.numel() for parameter in theirs.parameters() if parameter.dim() > 1]
    num_others = sum(parameter.numel() for parameter in theirs.parameters()) - sum(sizes)

    def weight_bytes(**settings: Any) -> int:
        config = EngineConfig(device="cpu", num_blocks=100, **settings)
        (found,) = (model for model in list_models(config, [tmp_path]) if model.name == str(path))
        assert found.needs is not None
        return found.needs.weight_bytes

    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: {"avx512_bf16": True})
    assert weight_bytes() == sum(sizes) * 20 // 32 + num_others * 2
    assert weight_bytes(dtype="bfloat16") == (sum(sizes) + num_others) * 2
    assert weight_bytes(quantization="int8") == (sum(sizes) + num_others) * 34 // 32


@pytest.mark.usefixtures("hub_cache")
def test_weights_are_counted_as_taken(tmp_path: Path) -> None:
    """With the number of blocks left open, what the weights will take is not promised to the cache."""
    make_tiny("llama").save_pretrained(tmp_path / "models" / "tiny")
    (found,) = (
        model for model in list_models(EngineConfig(device="cpu"), [tmp_path / "models"]) if "tiny" in model.name
    )
    assert found.needs is not None
    assert found.needs.num_blocks > 0
    assert found.needs.num_sessions >= 1
