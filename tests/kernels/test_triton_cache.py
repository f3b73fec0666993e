"""Writing, rotating and copying by Triton: on the GPU where there is one, by the interpreter elsewhere."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.triton_interpreter import DEVICE, HAS_GPU  # isort: skip  (before any kernel is imported)
from kernels import reference, triton_backend
from tests.kernels.cases import TOLERANCES, Case, Scene
from tests.kernels.operations import check_copy, check_rotary_write

if HAS_GPU:
    pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("num_rotated", [20, 64])
def test_rotary_write(dtype: torch.dtype, num_rotated: int) -> None:
    check_rotary_write(triton_backend, dtype, DEVICE, num_rotated)


@pytest.mark.parametrize("dtype", [*TOLERANCES, torch.float8_e4m3fn], ids=str)
def test_copy(dtype: torch.dtype) -> None:
    check_copy(triton_backend, dtype, DEVICE)


@pytest.mark.parametrize("head_dim", [32, 80])
@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.float8_e4m3fn], ids=str)
def test_the_cache_holds_what_the_reference_writes(head_dim: int, cache_dtype: torch.dtype) -> None:
    """Bit for bit, over the whole range of float8: subnormal, too large, infinite, undefined."""
    scene = Scene(Case(rows=((1, 40), (1, 3)), head_dim=head_dim, cache_dtype=cache_dtype), DEVICE)
    sizes = torch.logspace(-6, 4, scene.keys[0].numel(), device=DEVICE).view_as(scene.keys[0])
    scene.keys[0] *= sizes
    scene.keys[1][0, 0, :5] = torch.tensor([torch.inf, -torch.inf, 0.0, 448.0, 464.1], device=DEVICE)
    stored = [scene.filled_cache(backend).storage.view(torch.uint8) for backend in (triton_backend, reference)]
    assert torch.equal(*stored)


def test_undefined_numbers_stay_undefined_in_float8() -> None:
    scene = Scene(Case(rows=((1, 1),), cache_dtype=torch.float8_e4m3fn), DEVICE)
    scene.keys[0][0, 0, 0] = torch.nan
    cache = scene.filled_cache(triton_backend)
    assert reference.gather(cache, 1, torch.tensor(scene.tables[0], device=DEVICE))[0][0, 0, 0].isnan()
