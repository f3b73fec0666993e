"""RMSNorm and SwiGLU by Triton: on the GPU where there is one, by the interpreter elsewhere."""

from __future__ import annotations

import pytest
import torch

from tests.kernels.triton_interpreter import DEVICE, HAS_GPU  # isort: skip  (before any kernel is imported)
from kernels import triton_backend
from tests.kernels.cases import TOLERANCES
from tests.kernels.operations import check_norm, check_swiglu

if HAS_GPU:
    pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_norm(dtype: torch.dtype) -> None:
    check_norm(triton_backend, dtype, DEVICE)


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_swiglu(dtype: torch.dtype) -> None:
    check_swiglu(triton_backend, dtype, DEVICE)
