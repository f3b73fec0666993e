"""From the name of a model to the model: its files, its configuration, its weights, its tokenizer."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from engine.config import EngineConfig
from engine.errors import ConfigError, ModelLoadError
from engine.loading.configuration import read_folder_config
from engine.loading.generation import read_folder_generation, read_gguf_generation, recommended_sampling
from engine.loading.gguf import GGUFFile
from engine.loading.gguf_translation import read_config, read_tensors
from engine.loading.low_bits import stored_bits
from engine.loading.safetensors import read_safetensors
from engine.loading.sources import ModelFiles, find_model
from engine.models import Model
from engine.models.llama import LlamaModel, is_llama_like
from engine.models.weights import Read, Weights
from engine.tokenizer import Tokenizer, read_template
from kernels import Bits, multiplies_low_bits, stop_compiling

logger = logging.getLogger(__name__)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

UNHASHED_SETTINGS = ("_name_or_path", "transformers_version")
"""Of a configuration: what says nothing about the model."""


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A model ready to run, and what the engine must know of it.

    Attributes:
        architecture: the model type, as transformers calls it.
        fingerprint: hash of everything that keys and values depend on: configuration, weights, dtypes, quantisation.
        vocab_size: ids of the model, V; its tokenizer may use fewer.
        max_position: the longest sequence that the model was made for.
        eos_token_ids: any of these ends an answer.
        sampling: fields of ``SamplingParams`` as its makers recommend them.
    """

    model: Model
    tokenizer: Tokenizer
    architecture: str
    fingerprint: str
    vocab_size: int
    max_position: int
    eos_token_ids: frozenset[int]
    sampling: Mapping[str, float]
    device: torch.device
    dtype: torch.dtype


def load_model(config: EngineConfig) -> LoadedModel:
    """Find, read and build the model that the settings name.

    Raises:
        ModelLoadError: a file is missing or damaged, or the model is of a kind that cannot run.
        ConfigError: a setting cannot work here.
    """
    started = time.monotonic()
    template = read_template(config.chat_template)
    device = choose_device(config.device)
    files = find_model(config.model)
    dtype = choose_dtype(config.dtype, device, has_few_bits(config, files, device))
    max_bits = _max_bits(config, device)
    keep_low_bits = max_bits is not None or (config.dtype == "auto" and multiplies_low_bits(device.type))
    parts = _read_gguf(files, keep_low_bits) if files.gguf else _read_folder(files)
    max_position = find_max_position(parts.config)
    if is_llama_like(parts.config):
        weights = Weights(parts.tensors, dtype, device, max_bits)
        model: Model = LlamaModel(parts.config, weights, config.max_model_len or max_position)
    elif max_bits is None:
        # Brings 160 MB of transformers and torch's compiler with it, which the models above do without.
        from engine.models.adapter import load_adapter

        model = load_adapter(files.folder, parts.config, dtype, device)
    else:
        raise ConfigError(f"quantization does not reach {parts.config.model_type} models, which transformers computes")
    loaded = LoadedModel(
        model=model,
        tokenizer=Tokenizer(parts.tokenizer, parts.config.get_text_config().vocab_size, template),
        architecture=parts.config.model_type,
        fingerprint=_fingerprint(files, parts.config, _form(config, dtype, keep_low_bits)),
        vocab_size=parts.config.get_text_config().vocab_size,
        max_position=max_position,
        eos_token_ids=_eos_token_ids(parts),
        sampling=recommended_sampling(parts.generation),
        device=device,
        dtype=dtype,
    )
    form = f"{loaded.architecture}, {dtype} on {device}"
    logger.info("loaded %s (%s) in %.1f s", config.model, form, time.monotonic() - started)
    return loaded


def stop_loading() -> None:
    """End what takes longest of a load that is not wanted any more: compiling the kernels. The load then fails."""
    stop_compiling()


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the files hold: configurations and tokenizer of transformers, and tensors yet to be read."""

    config: Any
    generation: Mapping[str, Any]
    tokenizer: Any
    tensors: Mapping[str, Read]


def _read_gguf(files: ModelFiles, keep_low_bits: bool) -> _Parts:
    assert files.gguf is not None
    file = GGUFFile(files.gguf)
    config = read_config(file)
    try:
        # Going through the configuration, as AutoTokenizer does, would parse the whole file once more in slow code.
        tokenizer = PreTrainedTokenizerFast.from_pretrained(
            files.folder, gguf_file=files.gguf.name, local_files_only=True
        )
    except Exception as error:
        raise ModelLoadError(f"the tokenizer in {files.gguf} cannot be read: {error}") from error
    tensors = read_tensors(file, config, keep_low_bits=keep_low_bits)
    return _Parts(config, read_gguf_generation(file), tokenizer, tensors)


def _read_folder(files: ModelFiles) -> _Parts:
    config = read_folder_config(files.folder)
    try:
        # Given the configuration, it does not read one of its own.
        tokenizer = AutoTokenizer.from_pretrained(files.folder, config=config, local_files_only=True)
    except Exception as error:
        raise ModelLoadError(f"the tokenizer in {files.folder} cannot be read: {error}") from error
    return _Parts(config, read_folder_generation(files.folder), tokenizer, read_safetensors(files.shards))


def choose_device(setting: str) -> torch.device:
    """The device that a setting names; "auto" takes a GPU if there is one.

    Raises:
        ConfigError: there is no such device.
    """
    if setting == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(setting)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(f"device {setting!r} cannot be used: {error}") from error
    return device


def choose_dtype(setting: str, device: torch.device, few_bits: bool) -> torch.dtype:
    """The dtype that a setting names.

    "auto" takes bfloat16 where the device multiplies it in hardware, and on any CPU for a model whose matrices all have
    few bits: what is left then is mostly reading keys and values, of half the size.
    """
    if setting != "auto":
        return DTYPES[setting]
    if device.type == "cpu":
        return torch.bfloat16 if few_bits or _cpu_has_bfloat16() else torch.float32
    return torch.bfloat16


def has_few_bits(config: EngineConfig, files: ModelFiles, device: torch.device) -> bool:
    """Whether all matrices of a model will be held in few bits: the file's own, or those of a setting."""
    if config.quantization is not None:
        return True
    if files.gguf is None or config.dtype != "auto" or not multiplies_low_bits(device.type):
        return False
    matrices = [tensor for tensor in GGUFFile(files.gguf).tensors.values() if len(tensor.shape) == 2]
    return all(stored_bits(matrix.format) for matrix in matrices)


def _max_bits(config: EngineConfig, device: torch.device) -> Bits | None:
    if config.quantization is None:
        return None
    if not multiplies_low_bits(device.type):
        raise ConfigError(f"quantization {config.quantization!r} needs native kernels on a CPU, not {device}")
    return 8 if config.quantization == "int8" else 4


def _cpu_has_bfloat16() -> bool:
    flags = torch.cpu.get_capabilities()
    return bool(flags.get("avx512_bf16") or flags.get("amx_bf16"))


def find_max_position(config: Any) -> int:
    """The longest sequence that a model was made for.

    Raises:
        ModelLoadError: its configuration does not tell.
    """
    limit = getattr(config.get_text_config(), "max_position_embeddings", None)
    if limit is None:
        raise ModelLoadError(f"the configuration of {config.model_type} names no max_position_embeddings")
    return int(limit)


def _eos_token_ids(parts: _Parts) -> frozenset[int]:
    """Those of the generation configuration if there is one, else of the configuration; and the tokenizer's."""
    own = getattr(parts.config, "eos_token_id", None) or parts.config.get_text_config().eos_token_id
    ends = parts.generation.get("eos_token_id", own)
    ids = ends if isinstance(ends, list) else [ends]
    return frozenset(token_id for token_id in [*ids, parts.tokenizer.eos_token_id] if token_id is not None)


def _form(config: EngineConfig, dtype: torch.dtype, keep_low_bits: bool) -> str:
    """How weights, keys and values are held."""
    return f"{dtype} {config.quantization} {keep_low_bits} {config.kv_cache_dtype}"


def _fingerprint(files: ModelFiles, config: Any, form: str) -> str:
    """SHA-256 over the whole weight files, the configuration and the form that numbers are held in."""
    digest = hashlib.sha256()
    for path in files.weight_files:
        digest.update(_file_digest(path))
    settings = {key: value for key, value in config.to_dict().items() if key not in UNHASHED_SETTINGS}
    digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
    digest.update(form.encode())
    return digest.hexdigest()


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
