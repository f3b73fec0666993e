"""Loading as a whole: what the engine is told of a model, and that nobody is asked for it."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch

from engine.api import ChatMessage
from engine.config import EngineConfig
from engine.errors import ConfigError, ModelLoadError
from engine.loading import choose_device, choose_dtype, has_few_bits, load_model
from engine.loading.sources import find_model
from tests.engine.loading.gguf_files import write_gguf
from tests.engine.models.tiny import Rows, generate_with_transformers, load_tiny, make_tiny, prompts, save_tiny
from tests.engine.tiny_tokenizers import CHAT_TEMPLATE


@pytest.fixture
def closed_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError(f"a connection was tried to {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def test_a_folder_is_loaded_with_the_network_closed(tmp_path: Path, closed_network: None) -> None:
    save_tiny(tmp_path, "qwen2")
    loaded = load_tiny(tmp_path)
    assert loaded.architecture == "qwen2"
    assert (loaded.vocab_size, loaded.max_position) == (320, 128)
    assert loaded.eos_token_ids == {1}
    assert (loaded.dtype, loaded.device) == (torch.float32, torch.device("cpu"))
    assert loaded.model.layout(16).block_bytes == 2 * 3 * 2 * 8 * 16 * 4


def test_shards_are_put_together(tmp_path: Path) -> None:
    theirs = save_tiny(tmp_path, "llama")
    (tmp_path / "model.safetensors").unlink()
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    (prompt,) = prompts([9])
    assert Rows(load_tiny(tmp_path), [prompt], 20).run(64, 8) == [generate_with_transformers(theirs, prompt, 8)]


def test_the_fingerprint_follows_the_weights_and_nothing_else(tmp_path: Path) -> None:
    theirs = save_tiny(tmp_path / "a", "llama")
    first = load_tiny(tmp_path / "a").fingerprint
    theirs.save_pretrained(tmp_path / "b")
    (tmp_path / "a" / "tokenizer.json").rename(tmp_path / "b" / "tokenizer.json")
    (tmp_path / "a" / "tokenizer_config.json").rename(tmp_path / "b" / "tokenizer_config.json")
    assert load_tiny(tmp_path / "b").fingerprint == first, "another folder, the same model"
    with torch.no_grad():
        theirs.model.layers[1].mlp.down_proj.weight[3, 4] += 1e-3
    theirs.save_pretrained(tmp_path / "b")
    changed = load_tiny(tmp_path / "b").fingerprint
    half = load_model(EngineConfig(model=str(tmp_path / "b"), dtype="bfloat16", device="cpu")).fingerprint
    few_bits = load_tiny(tmp_path / "b", kv_cache_dtype="fp8").fingerprint
    assert len({first, changed, half, few_bits}) == 4


def test_all_ends_of_an_answer_are_known(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama")
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 8]}), "utf-8")
    assert load_tiny(tmp_path).eos_token_ids == {1, 7, 8}


def test_the_chat_template_of_the_settings_is_used(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama")
    tokenizer = load_tiny(tmp_path, chat_template=CHAT_TEMPLATE).tokenizer
    assert tokenizer.encode_chat([ChatMessage("user", "a")])[:2] == [0, 2]


def test_a_cached_hub_model_is_loaded_with_the_network_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed_network: None
) -> None:
    """Weights, tokenizer and template: nothing is asked for that is there."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    cached = tmp_path / "models--owner--name"
    save_tiny(cached / "snapshots" / ("0" * 40), "mistral")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("0" * 40, "utf-8")
    loaded = load_model(EngineConfig(model="owner/name", device="cpu", chat_template=CHAT_TEMPLATE))
    assert loaded.tokenizer.encode_chat([ChatMessage("user", "a")])


def test_the_demo_model_is_loaded_with_the_network_closed(closed_network: None) -> None:
    loaded = load_model(EngineConfig(device="cpu"))
    assert (loaded.architecture, loaded.vocab_size, loaded.max_position) == ("llama", 49152, 8192)
    assert loaded.eos_token_ids == {2}
    assert len(loaded.tokenizer.encode_chat([ChatMessage("user", "")])) == 30


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("config.json", "{", r"config\.json cannot be read"),
        ("config.json", '{"model_type": "no-such-model"}', r"config\.json cannot be read.*no-such-model"),
        ("tokenizer.json", "{", "tokenizer in .* cannot be read"),
    ],
)
def test_what_cannot_be_read_is_named(file: str, content: str, words: str, tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama")
    (tmp_path / file).write_text(content, "utf-8")
    with pytest.raises(ModelLoadError, match=words):
        load_tiny(tmp_path)


def test_foreign_quantisation_is_refused_by_name(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama")
    config = json.loads((tmp_path / "config.json").read_text("utf-8"))
    config["quantization_config"] = {"quant_method": "awq", "bits": 4}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    with pytest.raises(ModelLoadError, match="quantised by awq"):
        load_tiny(tmp_path)


def test_devices_and_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert choose_device("cpu") == cpu
    with pytest.raises(ConfigError, match="device 'nonsense' cannot be used"):
        choose_device("nonsense")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": True})
    assert choose_dtype("auto", cpu, False) == torch.bfloat16
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True})
    assert choose_dtype("auto", cpu, False) == torch.float32
    assert choose_dtype("auto", cpu, True) == torch.bfloat16
    assert choose_dtype("auto", gpu, False) == torch.bfloat16
    assert choose_dtype("float16", cpu, True) == torch.float16


@pytest.mark.parametrize(("stored", "few_bits"), [("Q8_0", True), ("Q4_1", True), ("F16", False)])
def test_a_file_has_few_bits_if_all_its_matrices_do(stored: str, few_bits: bool, tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_gguf(path, make_tiny("llama", hidden_size=64, intermediate_size=96), stored)
    files, cpu = find_model(str(path)), torch.device("cpu")
    assert has_few_bits(EngineConfig(model=str(path)), files, cpu) == few_bits
    assert not has_few_bits(EngineConfig(model=str(path), dtype="float32"), files, cpu)
    assert has_few_bits(EngineConfig(model=str(path), dtype="float32", quantization="int8"), files, cpu)
