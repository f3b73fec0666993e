"""The native kernels, for every instruction set that this CPU has."""

from __future__ import annotations

import pytest
import torch

from kernels.cpu import NativeBackend
from kernels.cpu_build import instruction_sets
from tests.kernels.cases import Case, Scene

TOLERANCES = {torch.float32: 3e-6, torch.bfloat16: 1e-2}
CASES = [
    Case(rows=()),
    Case(rows=((1, 1), (1, 15), (1, 16), (1, 17), (1, 300))),
    Case(rows=((5, 5), (16, 33), (1, 40), (0, 7))),
    Case(rows=((20, 50), (1, 33)), sliding_window=9),
    Case(rows=((3, 50),), soft_cap=5.0, scale=1.0),
    Case(rows=((7, 31), (1, 90)), head_dim=80, num_kv_heads=6, block_size=8),
    Case(rows=((1, 3000), (70, 1500)), num_heads=9, num_kv_heads=3),
]


@pytest.fixture(params=instruction_sets(), ids=lambda each: each.name)
def backend(request: pytest.FixtureRequest) -> NativeBackend:
    return NativeBackend(request.param)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("case", CASES)
def test_attention_is_dense_attention(case: Case, dtype: torch.dtype, backend: NativeBackend) -> None:
    scene = Scene(Case(**{**vars(case), "dtype": dtype}))
    torch.testing.assert_close(
        scene.attend(backend).double(), scene.dense(), atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype]
    )
