"""How many blocks there are, and how long a conversation may be: as set, or from the memory that is there."""

from __future__ import annotations

import ctypes
import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from engine.config import EngineConfig
from engine.errors import ConfigError
from kernels import CacheLayout, supports

logger = logging.getLogger(__name__)

GIB = 1 << 30

GPU_CACHE_SHARE = 0.85
"""Of the memory that is free once the weights are loaded; the rest is for activations."""

CPU_CACHE_SHARE, MAX_CPU_CACHE_BYTES = 0.25, 4 * GIB
SWAP_SHARE, MAX_SWAP_BYTES = 0.1, 4 * GIB
"""The machine is not ours alone: without a setting, take a modest part of what is available."""

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, slots=True)
class CacheSizes:
    """Resolved sizes: blocks on the device, blocks in CPU memory, tokens of prompt and answer together."""

    num_blocks: int
    num_swap_blocks: int
    max_model_len: int


def give_back_memory() -> None:
    """Return what only loading needed to the system, where the C library can; by itself it keeps tens of megabytes."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def choose_layout(config: EngineConfig, layout: CacheLayout, device: torch.device) -> CacheLayout:
    """The layout of the cache; ``layout`` keeps numbers in the dtype of the model.

    Raises:
        ConfigError: the device's kernels cannot keep them as the settings want.
    """
    if config.kv_cache_dtype == "auto":
        return layout
    layout = replace(layout, dtype=torch.float8_e4m3fn)
    if not supports(device.type, layout):
        raise ConfigError(f"kv_cache_dtype 'fp8' needs a GPU; the kernels of this {device.type} cannot read it")
    return layout


def resolve_sizes(
    config: EngineConfig, layout: CacheLayout, device: torch.device, max_position: int, reserved_bytes: int = 0
) -> CacheSizes:
    """Fill in what the configuration leaves open. Call when the weights are loaded.

    Args:
        max_position: the longest sequence that the model was made for.
        reserved_bytes: of memory that is free but spoken for: weights that are yet to be loaded.

    Raises:
        ConfigError: the wanted length is more than the model or the blocks can hold.
    """
    wanted_len = config.max_model_len
    if wanted_len is not None and wanted_len > max_position:
        raise ConfigError(f"max_model_len is {wanted_len}, but the model was made for at most {max_position} tokens")
    num_blocks = config.num_blocks
    if num_blocks is None:
        most_useful = config.max_num_seqs * -(-(wanted_len or max_position) // config.block_size)
        num_blocks = min(_device_cache_bytes(device, reserved_bytes) // layout.block_bytes, most_useful)
    num_slots = num_blocks * config.block_size
    if num_slots < 2 or (wanted_len is not None and wanted_len > num_slots):
        raise ConfigError(
            f"memory for {num_blocks} blocks of {config.block_size} tokens holds {num_slots} tokens, fewer than "
            f"max_model_len ({wanted_len or max_position}); lower max_model_len or set num_blocks"
        )
    if wanted_len is None and max_position > num_slots:
        logger.warning(
            "num_blocks (%d) x block_size (%d) holds %d tokens, so max_model_len is %d instead of the model's %d",
            num_blocks, config.block_size, num_slots, num_slots, max_position,
        )  # fmt: skip
    num_swap_blocks = config.num_swap_blocks
    if num_swap_blocks is None:
        swap_bytes = min(int(_available_cpu_bytes() * SWAP_SHARE), MAX_SWAP_BYTES)
        num_swap_blocks = min(swap_bytes // layout.block_bytes, num_blocks)
    return CacheSizes(num_blocks, num_swap_blocks, wanted_len or min(max_position, num_slots))


def _device_cache_bytes(device: torch.device, reserved_bytes: int) -> int:
    if device.type == "cpu":
        free = max(0, _available_cpu_bytes() - reserved_bytes)
        return min(int(free * CPU_CACHE_SHARE), MAX_CPU_CACHE_BYTES)
    free, _ = torch.cuda.mem_get_info(device)
    return int(max(0, free - reserved_bytes) * GPU_CACHE_SHARE)


def _available_cpu_bytes() -> int:
    """Free memory of the machine, or of the container where that is less."""
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        fields = dict(line.split(":") for line in meminfo.read_text().splitlines())
        available = int(fields["MemAvailable"].split()[0]) * 1024
    if _CGROUP_LIMIT.exists() and (limit := _CGROUP_LIMIT.read_text().strip()) != "max":
        available = min(available, int(limit))
    return available
