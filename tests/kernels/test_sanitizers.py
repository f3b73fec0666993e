"""No native kernel reads or writes outside of its tensors, nor relies on what C++ leaves undefined."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.cpu_build import instruction_sets
from tests.machine import missing, need_program

ROOT = Path(__file__).parents[2]
SETS = [each.name for each in (instruction_sets()[0], instruction_sets()[-1])]


def need_sanitizer() -> str:
    """The libraries that must be loaded before Python: g++'s address checks, and the C++ library that they wrap."""
    compiler = need_program("g++")
    paths = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    return " ".join(paths) if all(map(os.path.isabs, paths)) else missing("libasan of g++")


@pytest.mark.parametrize("name", SETS)
def test_kernels_and_whole_decoders_are_clean(name: str, tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "CXX": "g++",
        "XDG_CACHE_HOME": str(tmp_path),
        "LD_PRELOAD": need_sanitizer(),
        "ASAN_OPTIONS": "detect_leaks=0",
        "OMP_NUM_THREADS": "2",
    }
    command = [sys.executable, "-m", "tests.kernels.sanitized", name]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
