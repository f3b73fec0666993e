"""How a model's makers would have it generate: in a file beside the weights, or in the GGUF file itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.api import SamplingParams
from engine.errors import InvalidRequest
from engine.loading.gguf import GGUFFile

_GGUF_KEYS = {
    "temperature": "general.sampling.temp",
    "top_p": "general.sampling.top_p",
    "top_k": "general.sampling.top_k",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
"""What ``SamplingParams`` and a generation configuration call alike, and a GGUF file otherwise."""

_GGUF_DIGITS = 6
"""A GGUF file holds 32-bit floats, in which 0.6 is 0.6000000238."""


def read_folder_generation(folder: Path) -> dict[str, Any]:
    """The generation configuration; empty where there is none."""
    path = folder / "generation_config.json"
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}


def read_gguf_generation(file: GGUFFile) -> dict[str, Any]:
    """The same fields, as far as the file has them."""
    found = {name: file.metadata[key] for name, key in _GGUF_KEYS.items() if key in file.metadata}
    return {name: round(value, _GGUF_DIGITS) for name, value in found.items()}


def recommended_sampling(generation: Mapping[str, Any]) -> dict[str, float]:
    """What it recommends of ``SamplingParams``; empty where that is nothing, or cannot be."""
    if generation.get("do_sample") is False:
        return {}
    found = {name: generation[name] for name in _GGUF_KEYS if generation.get(name) is not None}
    try:
        SamplingParams(**found)
    except InvalidRequest:
        return {}
    return found
