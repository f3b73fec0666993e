"""Runs the native kernels over the grid, and whole decoders, with the compiler's checks of addresses and of undefined
behaviour, which end the program at the first fault: python -m tests.kernels.sanitized INSTRUCTION_SET, under libasan.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import torch

from kernels.cpu import NativeBackend
from kernels.cpu_build import INSTRUCTION_SETS
from tests.kernels.cases import GRID, LONG, assert_attends, with_dtype
from tests.kernels.decoders import DECODERS, compute_both_ways
from tests.kernels.operations import check_linear, check_norm, check_rotary_write, check_swiglu

FLAGS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def main(name: str) -> None:
    plain = next(each for each in INSTRUCTION_SETS if each.name == name)
    checked = replace(plain, name=f"{name}-sanitized", compiler_flags=(*plain.compiler_flags, *FLAGS))
    backend = NativeBackend(checked)
    for dtype in (torch.float32, torch.bfloat16):
        for case in (*GRID, LONG):
            assert_attends(with_dtype(case, dtype), backend)
        check_rotary_write(backend, dtype, num_rotated=20)
        check_norm(backend, dtype)
        check_swiglu(backend, dtype)
        check_linear(backend, dtype)
        for case in DECODERS.values():
            # Products of the second way are those of the plain build, so that the last bits differ.
            at_once, one_by_one = compute_both_ways(with_dtype(case, dtype), backend)
            torch.testing.assert_close(at_once[0], one_by_one[0], rtol=5e-2, atol=5e-2)


if __name__ == "__main__":
    main(sys.argv[1])
