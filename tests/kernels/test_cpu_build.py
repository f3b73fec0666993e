"""Building the native kernels: what is found around them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels import cpu_build
from kernels.cpu_build import INSTRUCTION_SETS, build_ahead, find_openmp, instruction_sets, load_library
from tests.machine import need_program

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


@pytest.fixture
def prebuilt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setattr(cpu_build, "PREBUILT_FOLDER", tmp_path / "prebuilt")
    monkeypatch.setattr(cpu_build, "FLAGS", (*cpu_build.FLAGS, "-O0"))  # only whether it builds and loads matters
    load_library.cache_clear()
    yield tmp_path / "prebuilt"
    load_library.cache_clear()


def test_libraries_built_ahead_serve_machines_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch, prebuilt: Path
) -> None:
    need_program("g++")
    libraries = build_ahead()
    assert {library.parent for library in libraries} == {prebuilt}
    assert {library.name.split("-")[1] for library in libraries} == {one.name for one in INSTRUCTION_SETS}
    monkeypatch.setenv("CXX", "no-such-compiler")
    best = instruction_sets()[0]
    assert load_library(best, best.lanes)._name in map(str, libraries)


def test_a_library_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch, prebuilt: Path) -> None:
    prebuilt.mkdir()
    best = instruction_sets()[0]
    (prebuilt / f"kernels-{best.name}-{best.lanes}-0123456789abcdef.so").touch()
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(cpu_build.BuildError, match="no C\\+\\+ compiler found"):
        load_library(best, best.lanes)
