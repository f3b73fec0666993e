"""The Triton kernels: on the GPU where there is one, by Triton's interpreter elsewhere."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.triton_interpreter import DEVICE, HAS_GPU  # isort: skip  (before any kernel is imported)
from kernels import reference, triton_attention, triton_backend
from tests.kernels.cases import GRID, LONG, TOLERANCES, Case, Scene, assert_attends, with_dtype

if HAS_GPU:
    GRID = (*GRID, LONG)
    pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("case", GRID, ids=str)
def test_attention_is_dense_attention(case: Case) -> None:
    assert_attends(case, triton_backend, DEVICE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", GRID[3:6:2], ids=str)
def test_half_precision(case: Case, dtype: torch.dtype) -> None:
    assert_attends(with_dtype(case, dtype), triton_backend, DEVICE)


@pytest.mark.parametrize("num_splits", [1, 2, 7, 64])
@pytest.mark.parametrize("sliding_window", [None, 40])
def test_splits_of_the_context_change_nothing(
    num_splits: int, sliding_window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where some splits of a short row are left without tokens."""
    monkeypatch.setattr(triton_attention, "_choose_splits", lambda *_: num_splits)
    case = Case(rows=((1, 400), (2, 70), (1, 1)), num_heads=2, num_kv_heads=1, sliding_window=sliding_window)
    assert_attends(case, triton_backend, DEVICE)


def test_contexts_are_split_only_where_that_fills_the_chip() -> None:
    choose = triton_attention._choose_splits
    assert choose(num_programs=8, max_context_len=8192, block_n=64) == 64
    assert choose(num_programs=8, max_context_len=256, block_n=64) == 2
    assert choose(num_programs=600, max_context_len=8192, block_n=64) == 1
    assert choose(num_programs=0, max_context_len=0, block_n=64) == 1


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_a_float8_cache_is_read_as_the_reference_reads_it(dtype: torch.dtype) -> None:
    case = Case(rows=((1, 40), (5, 21)), dtype=dtype, cache_dtype=torch.float8_e4m3fn)
    scene = Scene(case, DEVICE)
    caches = [scene.empty_cache(backend) for backend in (triton_backend, reference)]
    for cache in caches:
        cache.scales[:, 1] = torch.tensor([[0.5, 2.0], [3.0, 0.25]])
        cache.backend.write_kv(
            cache, 1, torch.cat(scene.keys), torch.cat(scene.values), scene.batch(whole_history=True)
        )
    options = triton_attention.AttentionOptions(0.125)
    actual, expected = (
        cache.backend.paged_attention(scene.query, cache, 1, scene.batch(), options) for cache in caches
    )
    torch.testing.assert_close(actual, expected, atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype])


def test_undefined_numbers_stay_with_their_row() -> None:
    scene = Scene(Case(rows=((1, 40), (1, 20)), num_heads=2, num_kv_heads=1), DEVICE)
    expected = scene.attend(triton_backend)
    scene.keys[1][7, 0, 3] = torch.nan
    actual = scene.attend(triton_backend)
    assert torch.equal(actual[0], expected[0])
    assert actual[1].isnan().all()


@pytest.mark.parametrize("vendor", ["cuda", "hip"])
def test_every_shape_has_a_tiling(vendor: str) -> None:
    for itemsize in (2, 4):
        for padded_dim in (16, 32, 64, 128, 256):
            for num_query_rows in (1, 16, 17, 4096):
                tiling = triton_attention.find_tiling(vendor, itemsize, padded_dim, num_query_rows, is_fp8=False)
                assert tiling.block_m >= 16
