"""The table of models."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest

from chatsrv.cli import main
from chatsrv.model_list import describe_models
from engine import FoundModel, ModelNeeds

SMALL = ModelNeeds("llama", 270_000_000, 16 * 23_040, 4096, 8192, 8)
LARGE = ModelNeeds("qwen3", 16_400_000_000, 16 * 147_456, 812, 12_992, 1)


def test_models_that_run_come_first_in_columns() -> None:
    models = [
        FoundModel("smollm2", SMALL),
        FoundModel("owner/bad", None, "bloom takes no attention implementation"),
        FoundModel("owner/large", LARGE),
    ]
    assert describe_models(models, 16).splitlines() == [
        "model        architecture  weights  a token's KV  blocks  context  sessions",
        "smollm2      llama         270 MB   23 kB         4,096   8,192    8",
        "owner/large  qwen3         16.4 GB  147 kB        812     12,992   1",
        "owner/bad: cannot run: bloom takes no attention implementation",
    ]


def test_the_command_lists_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "broken.gguf").write_bytes(b"GGUF")
    assert main(["models", "--data-dir", str(tmp_path), "--device", "cpu"]) == 0
    headings, *models = capsys.readouterr().out.splitlines()
    assert headings.split()[0] == "model"
    assert models[0].split()[:2] == ["smollm2", "llama"]
    assert models[-1].startswith(f"{tmp_path / 'models' / 'broken.gguf'}: cannot run: ")


def test_a_wrong_setting_is_one_clear_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--block-size", "7"]) == 2
    assert capsys.readouterr().err == "chatsrv: block_size must be from 8 to 256, not 7\n"


def test_an_empty_machine() -> None:
    assert describe_models([], 16) == "no models found"
