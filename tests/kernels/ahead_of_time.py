"""Compiles every Triton kernel, as it would be launched, to a chip's machine code; a program of its own, since the
interpreter must be off: python -m tests.kernels.ahead_of_time cuda 90. One JSON line per binary.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels import triton_attention, triton_cache, triton_elementwise

POINTEES = {torch.float32: "*fp32", torch.bfloat16: "*bf16"}


class Launch(NamedTuple):
    """A kernel, the types of its arguments in order, its constants and its warps and stages."""

    kernel: Any
    arguments: tuple[str, ...]
    constants: dict[str, Any]
    options: dict[str, int]

    @property
    def name(self) -> str:
        constants = " ".join(f"{name}={value}" for name, value in self.constants.items())
        return f"{self.kernel.fn.__name__} {' '.join(self.arguments[:1])} {constants}"


def launches(vendor: str) -> Iterator[Launch]:
    """What this vendor's chips are sent: all tilings and variants. (float16 needs what bfloat16 needs.)"""
    for dtype in POINTEES:
        for padded_dim in (64, 128, 256):
            for num_query_rows in (4, 2048):
                yield attention_launch(vendor, dtype, padded_dim, num_query_rows, is_plain=True)
                yield attention_launch(vendor, dtype, padded_dim, num_query_rows, is_plain=False)
    for padded_dim in (64, 256):
        constants = {"HEAD_DIM": padded_dim, "PADDED_DIM": padded_dim, "MAX_SPLITS": triton_attention.MAX_SPLITS}
        yield Launch(triton_attention.merge_kernel, ("*bf16", "*fp32", "*fp32", "i32"), constants, {"num_warps": 4})
    yield from cache_launches("*bf16", 80, is_fp8=False)
    yield from cache_launches("*fp32", 256, is_fp8=True)
    yield Launch(
        triton_cache.copy_kernel,
        ("*i32", "*i64", "i32", "i32"),
        {"COPY_WORDS": triton_cache.COPY_WORDS},
        {"num_warps": 8},
    )
    norm_constants = {"PADDED_SIZE": 8192, "HAS_RESIDUAL": True}
    norm_arguments = ("*bf16",) * 5 + ("i32", "fp32")
    yield Launch(triton_elementwise.norm_kernel, norm_arguments, norm_constants, {"num_warps": 4})
    yield Launch(triton_elementwise.swiglu_kernel, ("*bf16", "*bf16", "i32"), {"BLOCK": 1024}, {"num_warps": 4})


def attention_launch(
    vendor: str, dtype: torch.dtype, padded_dim: int, num_query_rows: int, *, is_plain: bool
) -> Launch:
    """Plain, or with all that there is: float8 cache, soft cap and a split context."""
    tiling = triton_attention.find_tiling(vendor, dtype.itemsize, padded_dim, num_query_rows, is_fp8=not is_plain)
    pointee = POINTEES[dtype]
    storage = pointee if is_plain else "*u8"
    pointers = (pointee, "*fp32", "*fp32", pointee, storage, "*fp32", "*i32", "*i32", "*i32")
    constants = {
        "GROUP": 4,
        "HEAD_DIM": padded_dim,
        "PADDED_DIM": padded_dim,
        "BLOCK_SIZE": 16,
        "BLOCK_M": tiling.block_m,
        "BLOCK_N": tiling.block_n,
        "HAS_CAP": not is_plain,
        "IS_FP8": not is_plain,
        "IS_SPLIT": not is_plain,
    }
    options = {"num_warps": tiling.num_warps, "num_stages": tiling.num_stages}
    numbers = ("i32",) * 5 + ("fp32", "fp32", "i32", "i32")
    return Launch(triton_attention.attention_kernel, pointers + numbers, constants, options)


def cache_launches(pointee: str, head_dim: int, *, is_fp8: bool) -> Iterator[Launch]:
    storage = "*u8" if is_fp8 else pointee
    padded_dim, half = triton.next_power_of_2(head_dim), head_dim // 2
    constants = {"HEAD_DIM": head_dim, "PADDED_DIM": padded_dim, "BLOCK_SIZE": 16, "IS_FP8": is_fp8}
    arguments = (storage, pointee, pointee, "*fp32", "*i64") + ("i32",) * 5
    yield Launch(triton_cache.write_kernel, arguments, constants, {"num_warps": 1})
    rotary = {**constants, "NUM_HEADS": 32, "HALF": half, "PADDED_HALF": triton.next_power_of_2(half)}
    arguments = (storage, pointee, pointee, pointee, "*fp32", "*fp32", "*fp32", "*i64") + ("i32",) * 6
    yield Launch(triton_cache.rotary_write_kernel, arguments, rotary, {"num_warps": 1})


def compile_launch(launch: Launch, target: GPUTarget) -> dict[str, Any]:
    names = launch.kernel.arg_names
    runtime_names = [name for name in names if name not in launch.constants]
    assert len(runtime_names) == len(launch.arguments), launch
    signature = dict.fromkeys(names, "constexpr") | dict(zip(runtime_names, launch.arguments, strict=True))
    aligned = {(names.index(name),): [["tt.divisibility", 16]] for name in runtime_names if signature[name][0] == "*"}
    constants = {(names.index(name),): value for name, value in launch.constants.items()}
    source = ASTSource(fn=launch.kernel, signature=signature, constexprs=constants, attrs=aligned)
    compiled = triton.compile(source, target=target, options=launch.options)
    spills = count_cuda_spills(compiled) if target.backend == "cuda" else count_hip_spills(compiled)
    return {"name": launch.name, "shared_bytes": compiled.metadata.shared, "spills": spills}


def count_cuda_spills(compiled: Any) -> int:
    """Bytes of local memory per thread: these kernels have no arrays of their own, so that only spills need it."""
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder, "kernel.cubin")
        binary.write_bytes(compiled.asm["cubin"])
        command = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(binary)]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"(?:STACK|LOCAL):(\d+)", report)
    assert found, report
    return sum(map(int, found))


def count_hip_spills(compiled: Any) -> int:
    """Bytes of scratch memory per thread. (Scalar registers spill into vector registers, which costs no memory.)"""
    return max(map(int, re.findall(r"\.private_segment_fixed_size:\s*(\d+)", compiled.asm["amdgcn"])))


if __name__ == "__main__":
    backend, arch = sys.argv[1:3]
    target = GPUTarget(backend, int(arch) if backend == "cuda" else arch, 32 if backend == "cuda" else 64)
    for launch in launches(backend):
        print(json.dumps(compile_launch(launch, target)), flush=True)
