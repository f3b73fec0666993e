from __future__ import annotations

import pytest
import torch

from kernels import reference
from tests.kernels.cases import Case, Scene

TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(
    "case",
    [
        Case(rows=()),
        Case(rows=((1, 1), (1, 15), (1, 16), (1, 17), (1, 300))),
        Case(rows=((5, 5), (16, 33), (1, 40), (0, 7))),
        Case(rows=((20, 50), (1, 33)), sliding_window=9),
        Case(rows=((3, 50),), soft_cap=5.0, scale=1.0),
        Case(rows=((7, 31), (1, 90)), head_dim=80, num_kv_heads=6, block_size=8),
    ],
)
def test_attention_is_dense_attention(case: Case, dtype: torch.dtype) -> None:
    scene = Scene(Case(**{**vars(case), "dtype": dtype}))
    torch.testing.assert_close(
        scene.attend(reference).double(), scene.dense(), atol=TOLERANCES[dtype], rtol=TOLERANCES[dtype]
    )
