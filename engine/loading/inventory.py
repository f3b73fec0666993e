"""Which models are on this machine, and what each needs of its memory. Reads headers, not weights; asks nobody."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import constants, scan_cache_dir
from huggingface_hub.errors import CacheNotFound
from safetensors import safe_open

from engine.config import EngineConfig
from engine.errors import ConfigError, ModelLoadError
from engine.loading import choose_device, choose_dtype, find_max_position, has_few_bits
from engine.loading.configuration import read_folder_config
from engine.loading.gguf import GGUFFile, GGUFTensor
from engine.loading.gguf_translation import read_config
from engine.loading.low_bits import stored_bits
from engine.loading.sources import DEMO_MODEL, ModelFiles, find_model
from engine.models.llama import head_dim, is_llama_like
from engine.sizing import choose_layout, resolve_sizes
from kernels import Bits, CacheLayout, multiplies_low_bits

BYTES_PER_WEIGHT: dict[Bits, float] = {4: 20 / 32, 8: 34 / 32}
"""With the scale of each group of 32, at 4 bits also its minimum, two bytes each."""


@dataclass(frozen=True, slots=True)
class ModelNeeds:
    """What a model takes of the memory, and how much is left for conversations.

    Attributes:
        architecture: the model type, as transformers calls it.
        weight_bytes: of the weights in memory.
        block_bytes: of one block of keys and values, all layers.
        num_blocks: that fit beside the weights, as the settings would have it.
        max_model_len: tokens of prompt and answer together.
        num_sessions: conversations of that length at once.
    """

    architecture: str
    weight_bytes: int
    block_bytes: int
    num_blocks: int
    max_model_len: int
    num_sessions: int


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model on this machine. ``name`` is what the setting ``model`` takes; ``problem`` says why it cannot run."""

    name: str
    needs: ModelNeeds | None
    problem: str | None = None


def list_models(config: EngineConfig, folders: Sequence[Path]) -> list[FoundModel]:
    """The demo model, those in the folders, and those in the cache of the Hugging Face hub.

    Args:
        config: the settings under which each would run; ``model`` is not looked at.
        folders: of models, each a folder or a ``.gguf`` file of its own.
    """
    return [_inspect(replace(config, model=name)) for name in _names(folders)]


def _names(folders: Sequence[Path]) -> Iterator[str]:
    try:
        find_model(DEMO_MODEL)
        yield DEMO_MODEL
    except ModelLoadError:
        pass
    for folder in folders:
        for path in sorted(folder.iterdir()) if folder.is_dir() else ():
            if path.suffix == ".gguf" or (path / "config.json").is_file():
                yield str(path)
    try:
        cached = scan_cache_dir(constants.HF_HUB_CACHE).repos
    except CacheNotFound:
        return
    yield from sorted(repo.repo_id for repo in cached if repo.repo_type == "model")


def _inspect(config: EngineConfig) -> FoundModel:
    try:
        return FoundModel(config.model, _needs(config))
    except (ModelLoadError, ConfigError) as error:
        return FoundModel(config.model, None, str(error))


def _needs(config: EngineConfig) -> ModelNeeds:
    files = find_model(config.model, local_files_only=True)
    model_config = read_folder_config(files.folder) if files.gguf is None else read_config(GGUFFile(files.gguf))
    if not is_llama_like(model_config):
        from engine.models.adapter import check_architecture  # heavy, and rarely needed

        check_architecture(model_config)
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, device, has_few_bits(config, files, device))
    weight_bytes = _weight_bytes(files, config, device, dtype)
    layout = choose_layout(config, _layout(model_config.get_text_config(), config.block_size, dtype), device)
    sizes = resolve_sizes(config, layout, device, find_max_position(model_config), weight_bytes)
    return ModelNeeds(
        architecture=model_config.model_type,
        weight_bytes=weight_bytes,
        block_bytes=layout.block_bytes,
        num_blocks=sizes.num_blocks,
        max_model_len=sizes.max_model_len,
        num_sessions=sizes.num_blocks // -(-sizes.max_model_len // config.block_size),
    )


def _weight_bytes(files: ModelFiles, config: EngineConfig, device: torch.device, dtype: torch.dtype) -> int:
    """As the weights lie in memory; low-bit ones with the scales of their groups."""
    if config.quantization is not None:
        return int(_num_weights(files) * BYTES_PER_WEIGHT[8 if config.quantization == "int8" else 4])
    if files.gguf is None or config.dtype != "auto" or not multiplies_low_bits(device.type):
        return _num_weights(files) * dtype.itemsize
    tensors = GGUFFile(files.gguf).tensors.values()
    return sum(_num_bytes(tensor, dtype) for tensor in tensors)


def _num_bytes(tensor: GGUFTensor, dtype: torch.dtype) -> int:
    bits = stored_bits(tensor.format)
    return int(prod(tensor.shape) * (dtype.itemsize if bits is None else BYTES_PER_WEIGHT[bits]))


def _num_weights(files: ModelFiles) -> int:
    if files.gguf is not None:
        return sum(prod(tensor.shape) for tensor in GGUFFile(files.gguf).tensors.values())
    count = 0
    for shard in files.shards:
        with safe_open(shard, framework="pt") as file:
            count += sum(prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    return count


def _layout(config: Any, block_size: int, dtype: torch.dtype) -> CacheLayout:
    num_kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    return CacheLayout(config.num_hidden_layers, num_kv_heads, head_dim(config), block_size, dtype)
