"""The oracle itself, against dense attention and against what PyTorch and the papers define."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings

from kernels import KVCache, reference
from tests.kernels.cases import GRID, LONG, TOLERANCES, Case, Scene, assert_attends, with_dtype
from tests.kernels.odd_cases import odd_cases
from tests.kernels.operations import check_copy, check_norm, check_rotary_write, check_swiglu


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("case", [*GRID, LONG], ids=str)
def test_attention_is_dense_attention(case: Case, dtype: torch.dtype) -> None:
    assert_attends(with_dtype(case, dtype), reference)


@settings(max_examples=40)
@given(odd_cases())
def test_odd_shapes(case: Case) -> None:
    assert_attends(case, reference)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_companions(dtype: torch.dtype) -> None:
    check_rotary_write(reference, dtype)
    check_copy(reference, dtype)
    check_norm(reference, dtype)
    check_swiglu(reference, dtype)


def test_float8_cache_keeps_attention_within_its_precision() -> None:
    """e4m3 has 3 bits of mantissa: stored numbers are off by 1/16 at most, 3% on average, which averages out."""
    case = Case(rows=((1, 300), (20, 90)), dtype=torch.bfloat16, cache_dtype=torch.float8_e4m3fn)
    difference = Scene(case).attend(reference).double() - Scene(case).dense()
    assert difference.square().mean().sqrt() < 0.02
    assert difference.abs().max() < 0.2


def test_float8_scales_keep_large_and_small_heads_precise() -> None:
    """Head 0 is too large for e4m3 and head 1 too small; their scales bring both into range."""
    case = Case(rows=((1, 100),), num_heads=2, num_kv_heads=2, cache_dtype=torch.float8_e4m3fn)
    scene, factors = Scene(case), torch.tensor([1e5, 1e-5])
    scene.values = [value * factors[:, None] for value in scene.values]
    cache = scene.empty_cache(reference)
    cache.scales[1, 1] = factors
    batch = scene.batch(whole_history=True)
    reference.write_kv(cache, 1, scene.keys[0], scene.values[0], batch)
    answer = reference.paged_attention(scene.query, cache, 1, scene.batch(), options_of(case)) / factors[:, None]
    assert (answer.double() - scene.dense() / factors[:, None].double()).abs().max() < 0.1


def options_of(case: Case) -> reference.AttentionOptions:
    return reference.AttentionOptions(case.head_dim**-0.5)


def test_gather_returns_what_was_written() -> None:
    scene = Scene(Case(rows=((1, 40), (1, 5))))
    cache: KVCache = scene.filled_cache(reference)
    keys, values = reference.gather(cache, 1, torch.tensor(scene.tables[0]))
    assert torch.equal(keys[:, :40], scene.keys[0].transpose(0, 1))
    assert torch.equal(values[:, :40], scene.values[0].transpose(0, 1))
