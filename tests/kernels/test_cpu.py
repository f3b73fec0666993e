"""The native kernels, for every instruction set that this CPU has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings

from kernels import KVCache, paged_attention, reference, write_kv
from kernels.cpu import NativeBackend, best_native_backend
from kernels.cpu_build import instruction_sets
from tests.kernels.cases import GRID, LONG, TOLERANCES, Case, Scene, assert_attends, with_dtype
from tests.kernels.odd_cases import odd_cases
from tests.kernels.operations import check_copy, check_norm, check_rotary_write, check_swiglu

DTYPES = (torch.float32, torch.bfloat16)


@pytest.fixture(params=[each for each in instruction_sets() if "vnni" not in each.name], ids=lambda each: each.name)
def backend(request: pytest.FixtureRequest) -> NativeBackend:
    return NativeBackend(request.param)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Threads that share few cores with other programs wait for each other; one test below uses two."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", [*GRID, LONG], ids=str)
def test_attention_is_dense_attention(case: Case, dtype: torch.dtype, backend: NativeBackend) -> None:
    assert_attends(with_dtype(case, dtype), backend)


@settings(max_examples=100)
@given(odd_cases(max_context_len=700))
def test_odd_shapes(case: Case) -> None:
    assert_attends(case, best_native_backend())
    assert_attends(with_dtype(case, torch.bfloat16), best_native_backend())


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_elementwise_operations(dtype: torch.dtype, backend: NativeBackend) -> None:
    check_norm(backend, dtype)
    check_swiglu(backend, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("num_rotated", [20, 48, 64])
def test_writes(dtype: torch.dtype, num_rotated: int, backend: NativeBackend) -> None:
    check_rotary_write(backend, dtype, num_rotated=num_rotated)
    check_copy(backend, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_does_not_depend_on_its_batch_nor_on_chunks_nor_on_threads(dtype: torch.dtype) -> None:
    """Bit for bit: one token at a time equals one chunk, alone equals among others, two threads equal one."""
    backend = best_native_backend()
    case = Case(rows=((40, 300), (1, 77), (30, 30)), num_heads=9, num_kv_heads=3, dtype=dtype)
    scene = Scene(case)
    whole = scene.attend(backend)
    torch.set_num_threads(2)
    assert torch.equal(scene.attend(backend), whole)
    cache = scene.filled_cache(backend)
    for index in (0, 17, 39):
        alone = replace(case, rows=((1, 261 + index),))
        token = Scene(alone)
        token.tables = [scene.tables[0][: len(token.tables[0])]]
        query = scene.query[index : index + 1].contiguous()
        assert torch.equal(paged_attention(query, cache, 1, token.batch(), **case.options), whole[index : index + 1])


def test_infinite_and_undefined_scores_stay_with_their_row() -> None:
    backend = best_native_backend()
    scene = Scene(Case(rows=((1, 40), (2, 20), (1, 33))))
    expected = scene.attend(backend)
    scene.keys[1][7, 0, 3] = torch.nan
    scene.values[2][5, 1, 9] = torch.inf
    actual = scene.attend(backend)
    assert torch.equal(actual[0], expected[0])
    assert actual[1:3, :3].isnan().all()
    assert torch.equal(actual[1:3, 3:], expected[1:3, 3:])
    assert actual[3, 3:, 9].isinf().all()


def test_a_query_with_strides_needs_no_copy() -> None:
    backend, scene = best_native_backend(), Scene(Case(rows=((5, 20),)))
    expected = scene.attend(backend)
    wide = torch.randn(5, 11, 64)
    wide[:, :6] = scene.query
    scene.query = wide[:, :6]
    assert torch.equal(scene.attend(backend), expected)


@pytest.mark.parametrize(("name", "wrong"), [("block_tables", -1), ("block_tables", 99), ("query_starts", 7)])
def test_a_batch_that_points_outside_of_the_cache_is_refused(name: str, wrong: int) -> None:
    backend, scene = best_native_backend(), Scene(Case(rows=((1, 40), (2, 20))))
    cache, batch = scene.filled_cache(backend), scene.batch()
    getattr(batch, name).view(-1)[1] = wrong
    with pytest.raises(ValueError, match=name):
        paged_attention(scene.query, cache, 1, batch, **scene.case.options)


def test_a_slot_outside_of_the_cache_is_refused() -> None:
    backend, scene = best_native_backend(), Scene(Case(rows=((2, 2),)))
    cache, batch = scene.empty_cache(backend), scene.batch()
    batch.slot_mapping[1] = cache.num_blocks * 16
    with pytest.raises(ValueError, match="slot_mapping"):
        write_kv(cache, 1, scene.keys[0], scene.values[0], batch)


@pytest.mark.parametrize("change", [{"dtype": torch.float16}, {"head_dim": 36}, {"block_size": 12}], ids=str)
def test_what_it_does_not_support_goes_to_the_reference(change: dict[str, object]) -> None:
    layout = replace(Case(rows=()).layout, **change)
    assert KVCache.allocate(layout, 1, "cpu").backend is reference
