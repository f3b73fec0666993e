"""Which peers are found, and how they are started."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.peers import Peer, default_folder, installed_peers


def _install(folder: Path, name: str) -> None:
    python = folder / name / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()


def test_only_installed_peers_take_part(tmp_path: Path) -> None:
    _install(tmp_path, "openvino")
    _install(tmp_path, "vllm")
    assert [peer.name for peer in installed_peers(tmp_path)] == ["vllm", "openvino"]
    assert installed_peers(tmp_path / "nothing") == []


def test_vllm_preloads_the_libraries_that_are_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    library = tmp_path / "vllm" / "lib" / "libiomp5.so"
    library.parent.mkdir(parents=True)
    library.touch()
    assert str(library) in Peer("vllm", tmp_path).environment()["LD_PRELOAD"].split(":")
    assert "LD_PRELOAD" not in Peer("hf", tmp_path).environment()


def test_the_folder_is_a_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PEERS_DIR", str(tmp_path))
    assert default_folder() == tmp_path
