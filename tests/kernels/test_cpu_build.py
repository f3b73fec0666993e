"""Building the native kernels: what is found around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernels.cpu_build import find_openmp

LINE = "7f10a0000000-7f10a0040000 r-xp 00000000 08:01 1234                       "


@pytest.mark.parametrize(
    "path",
    [
        "/usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0",
        "/a folder/with spaces/.venv/lib/python3.11/site-packages/torch/lib/libgomp.so.1",
        "/venv/torch.libs/libgomp-24e2ab19.so.1.0.0",
        "/opt-intel/lib/libiomp5.so",
        "/usr/lib/llvm/libomp.so.5",
    ],
)
def test_the_openmp_library_in_use_is_found_by_its_whole_path(path: str) -> None:
    maps = f"{LINE}/usr/lib/libstdc++.so.6\n{LINE}{path}\n{LINE}[stack]\n"
    assert find_openmp(maps) == Path(path)


def test_without_openmp_there_is_nothing_to_link() -> None:
    assert find_openmp(f"{LINE}/usr/lib/libomptarget.txt\n{LINE}[heap]\n") is None
