"""The checks before a launch: what does not fit is refused by name, before any kernel reads it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernels import AttentionBatch, CacheLayout, KVCache, paged_attention, write_kv

LAYOUT = CacheLayout(num_layers=2, num_kv_heads=2, head_dim=16, block_size=8, dtype=torch.float32)


def _batch(**changes: Any) -> AttentionBatch:
    """Two rows: 3 new tokens of 5 in all, and 1 of 9."""
    fields: dict[str, Any] = {
        "query_starts": torch.tensor([0, 3, 4], dtype=torch.int32),
        "context_lens": torch.tensor([5, 9], dtype=torch.int32),
        "block_tables": torch.tensor([[1, 0], [2, 3]], dtype=torch.int32),
        "slot_mapping": torch.tensor([10, 11, 12, 24], dtype=torch.int64),
        "max_query_len": 3,
        "max_context_len": 9,
    }
    return AttentionBatch(**fields | changes)


def _cache() -> KVCache:
    return KVCache.allocate(LAYOUT, 4, "cpu")


def test_a_batch_counts_its_rows_and_tokens() -> None:
    batch = _batch()
    assert (batch.num_rows, batch.num_tokens) == (2, 4)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("query_starts", torch.tensor([0, 3], dtype=torch.int32)),
        ("query_starts", torch.tensor([0, 3, 4])),
        ("context_lens", torch.tensor([[5, 9]], dtype=torch.int32)),
        ("context_lens", torch.tensor([5.0, 9.0])),
        ("block_tables", torch.zeros(3, 2, dtype=torch.int32)),
        ("block_tables", torch.zeros(2, 4, dtype=torch.int32)[:, ::2]),
        ("slot_mapping", torch.tensor([10, 11, 12, 24], dtype=torch.int32)),
        ("slot_mapping", torch.zeros(4, 1, dtype=torch.int64)),
        ("max_query_len", 10),
        ("max_query_len", -1),
    ],
)
def test_a_batch_that_does_not_fit_together_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        _batch(**{field: value})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_layers", 0),
        ("num_kv_heads", 0),
        ("head_dim", 0),
        ("head_dim", 257),
        ("block_size", 0),
        ("dtype", torch.int8),
    ],
)
def test_a_layout_that_cannot_be_is_refused_by_name(field: str, value: object) -> None:
    fields = {"num_layers": 2, "num_kv_heads": 2, "head_dim": 16, "block_size": 8, "dtype": torch.float32}
    with pytest.raises(ValueError, match=field):
        CacheLayout(**fields | {field: value})


def test_a_block_holds_keys_and_values_of_all_layers() -> None:
    assert LAYOUT.block_bytes == 2 * 2 * 2 * 16 * 8 * 4


@pytest.mark.parametrize(
    ("name", "query"),
    [
        ("query", torch.zeros(3, 4, 16)),
        ("query", torch.zeros(4, 3, 16)),
        ("query", torch.zeros(4, 4, 8)),
        ("query", torch.zeros(4, 4, 16, dtype=torch.bfloat16)),
        ("query", torch.zeros(4, 16, 4).transpose(1, 2)),
    ],
)
def test_queries_that_do_not_fit_the_batch_or_the_cache_are_refused(name: str, query: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=name):
        paged_attention(query, _cache(), 0, _batch(), scale=1.0)


@pytest.mark.parametrize("layer", [-1, 2])
def test_a_layer_that_is_not_there_is_refused(layer: int) -> None:
    with pytest.raises(ValueError, match="layer"):
        paged_attention(torch.zeros(4, 4, 16), _cache(), layer, _batch(), scale=1.0)


@pytest.mark.parametrize(("name", "index"), [("key", 0), ("value", 1)])
def test_keys_and_values_of_another_shape_are_refused(name: str, index: int) -> None:
    states = [torch.zeros(4, 2, 16), torch.zeros(4, 2, 16)]
    states[index] = torch.zeros(4, 2, 8)
    with pytest.raises(ValueError, match=name):
        write_kv(_cache(), 0, states[0], states[1], _batch())


@pytest.mark.parametrize("options", [{"sliding_window": 0}, {"soft_cap": 0.0}, {"soft_cap": -1.0}])
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        paged_attention(torch.zeros(4, 4, 16), _cache(), 0, _batch(), scale=1.0, **options)
