"""Triton attention over shapes that hypothesis draws: on the GPU where there is one, by the interpreter elsewhere."""

from __future__ import annotations

import pytest

pytest.importorskip("hypothesis", reason="`make gpu` does without hypothesis")

from hypothesis import given, settings

from tests.kernels.triton_interpreter import DEVICE, HAS_GPU  # isort: skip  (before any kernel is imported)
from kernels import triton_backend
from tests.kernels.cases import Case, assert_attends
from tests.kernels.odd_cases import odd_cases

if HAS_GPU:
    pytestmark = pytest.mark.gpu


@settings(max_examples=200 if HAS_GPU else 10)
@given(odd_cases(max_context_len=50))
def test_odd_shapes(case: Case) -> None:
    assert_attends(case, triton_backend, DEVICE)
