"""Lets the Triton kernels run on a CPU, by Triton's interpreter. Import before any kernels.triton_* module."""

from __future__ import annotations

import os
from typing import Any

import numpy
import torch

HAS_GPU = torch.cuda.is_available()
DEVICE = "cuda" if HAS_GPU else "cpu"

if not HAS_GPU:
    os.environ["TRITON_INTERPRET"] = "1"

    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

    def _widen(handle: Any) -> Any:
        if handle.dtype.scalar != tl.bfloat16:
            return handle.data
        return (handle.data.astype(numpy.uint32) << 16).view(numpy.float32)

    def _dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        return TensorHandle(numpy.matmul(_widen(a), _widen(b), dtype=d.data.dtype) + d.data, d.dtype.scalar)

    # The interpreter keeps bfloat16 as uint16, and its own product would multiply those as whole numbers.
    InterpreterBuilder.create_dot = _dot
