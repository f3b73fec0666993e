"""Sizes left open are filled in; sizes that contradict each other are refused with both numbers."""

from __future__ import annotations

import logging

import pytest
import torch

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.sizing import MAX_CPU_CACHE_BYTES, choose_layout, resolve_sizes
from kernels import CacheLayout

LAYOUT = CacheLayout(num_layers=2, num_kv_heads=2, head_dim=32, block_size=16, dtype=torch.float32)
CPU = torch.device("cpu")


@pytest.mark.parametrize("is_supported", [True, False])
def test_the_cache_s_dtype_is_chosen_where_kernels_know_it(is_supported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.sizing.supports", lambda device_type, layout: is_supported)
    assert choose_layout(EngineConfig(), LAYOUT, CPU) is LAYOUT
    config = EngineConfig(kv_cache_dtype="fp8")
    if is_supported:
        assert choose_layout(config, LAYOUT, CPU).block_bytes == LAYOUT.block_bytes // 4
    else:
        with pytest.raises(ConfigError, match="kv_cache_dtype 'fp8' needs a GPU; the kernels of this cpu"):
            choose_layout(config, LAYOUT, CPU)


def test_open_sizes_come_from_memory_and_from_what_is_useful() -> None:
    sizes = resolve_sizes(EngineConfig(max_num_seqs=2), LAYOUT, CPU, max_position=1024)
    assert sizes.num_blocks == 2 * 1024 // 16, "more blocks than two full sequences need are of no use"
    assert 0 <= sizes.num_swap_blocks <= sizes.num_blocks
    assert sizes.max_model_len == 1024
    many = resolve_sizes(EngineConfig(max_num_batched_tokens=10_000, max_num_seqs=10_000), LAYOUT, CPU, 1_000_000)
    assert many.num_blocks * LAYOUT.block_bytes <= MAX_CPU_CACHE_BYTES


def test_fewer_blocks_than_the_model_is_long_lower_the_limit_aloud(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        sizes = resolve_sizes(EngineConfig(num_blocks=4), LAYOUT, CPU, max_position=1024)
    assert sizes.max_model_len == 64
    assert "64" in caplog.text
    assert "1024" in caplog.text


def test_a_length_beyond_the_model_or_the_memory_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"2048.*1024"):
        resolve_sizes(EngineConfig(max_model_len=2048), LAYOUT, CPU, max_position=1024)
    huge = CacheLayout(num_layers=500, num_kv_heads=500, head_dim=256, block_size=16, dtype=torch.float32)
    with pytest.raises(ConfigError, match="max_model_len"):
        resolve_sizes(EngineConfig(max_model_len=100_000), huge, CPU, max_position=100_000)
