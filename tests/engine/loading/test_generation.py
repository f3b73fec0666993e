"""How a model's makers would have it sampled is read from either kind of file, if it can be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.loading.generation import recommended_sampling
from tests.engine.loading.gguf_files import write_gguf
from tests.engine.models.tiny import load_tiny, make_tiny, save_tiny


def test_a_folder_recommends_what_its_generation_configuration_says(tmp_path: Path) -> None:
    save_tiny(tmp_path, "llama")
    assert load_tiny(tmp_path).sampling == {}
    generation = {"do_sample": True, "temperature": 0.6, "top_k": 20, "top_p": None, "eos_token_id": 7}
    (tmp_path / "generation_config.json").write_text(json.dumps(generation), "utf-8")
    assert load_tiny(tmp_path).sampling == {"temperature": 0.6, "top_k": 20}


def test_a_gguf_file_recommends_the_same_by_other_names(tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", make_tiny("llama"), sampling={"temp": 0.6, "penalty_repeat": 1.05})
    assert load_tiny(tmp_path / "tiny.gguf").sampling == {"temperature": 0.6, "repetition_penalty": 1.05}


@pytest.mark.parametrize(
    "generation", [{"do_sample": False, "temperature": 0.6}, {"temperature": -1}, {"top_p": "high"}]
)
def test_what_is_not_to_be_or_cannot_be_is_no_recommendation(generation: dict[str, Any]) -> None:
    assert recommended_sampling(generation) == {}
