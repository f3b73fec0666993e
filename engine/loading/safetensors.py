"""Reading safetensors files, one tensor at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from safetensors import SafetensorError, safe_open

from engine.errors import ModelLoadError
from engine.models.weights import Read


def read_safetensors(shards: Sequence[Path]) -> dict[str, Read]:
    """A reader for each tensor of the files.

    Raises:
        ModelLoadError: a file is damaged.
    """
    tensors: dict[str, Read] = {}
    for path in shards:
        try:
            file = safe_open(path, framework="pt")
        except SafetensorError as error:
            raise ModelLoadError(f"{path} is not a readable safetensors file: {error}") from error
        tensors.update({name: partial(file.get_tensor, name) for name in file.keys()})  # type: ignore[no-untyped-call]  # noqa: SIM118
    return tensors
