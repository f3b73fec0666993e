"""Every Triton kernel becomes machine code for every chip we name, within its shared memory and without spills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Shared memory that one block of threads may use, in bytes, from the vendors' manuals.
CHIPS = {
    ("cuda", "80"): 163 << 10,
    ("cuda", "90"): 227 << 10,
    ("cuda", "100"): 227 << 10,
    ("hip", "gfx942"): 64 << 10,
}


@pytest.fixture(scope="module")
def compilers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[str, str], subprocess.Popen[str]]]:
    """One compiling program for each chip, all at once, with an empty cache and the interpreter off."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path_factory.mktemp("triton"))
    running = {
        chip: subprocess.Popen(
            [sys.executable, "-m", "tests.kernels.ahead_of_time", *chip],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for chip in CHIPS
    }
    yield running
    for program in running.values():
        program.kill()
        program.communicate()


@pytest.mark.parametrize("chip", CHIPS, ids="-".join)
def test_kernels_fit_the_chip(chip: tuple[str, str], compilers: dict[tuple[str, str], subprocess.Popen[str]]) -> None:
    program = compilers[chip]
    output, errors = program.communicate()
    assert program.returncode == 0, errors[-3000:]
    binaries = [json.loads(line) for line in output.splitlines()]
    assert len(binaries) > 30
    assert [binary for binary in binaries if binary["shared_bytes"] > CHIPS[chip]] == []
    assert [binary for binary in binaries if binary["spills"]] == []
