"""Building the native kernels: what is found around them, where they are kept, and two builds at once."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kernels import cpu_build
from kernels.cpu_build import INSTRUCTION_SETS, build_ahead, find_openmp, instruction_sets, load_library
from tests.machine import need_program

ROOT = Path(__file__).parents[2]
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


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A source that compiles at once, in place of the kernels."""
    need_program("g++")
    source = tmp_path / "answer.cpp"
    source.write_text('extern "C" int answer() { return 42; }')
    monkeypatch.setattr(cpu_build, "SOURCES", (source,))
    monkeypatch.setattr(cpu_build, "PREBUILT_FOLDER", tmp_path / "nothing built ahead")
    monkeypatch.setenv("CXX", "g++")
    load_library.cache_clear()
    yield source
    load_library.cache_clear()


BUILD = """
import sys
from pathlib import Path
from kernels import cpu_build

cpu_build.SOURCES = (Path(sys.argv[1]),)
cpu_build.PREBUILT_FOLDER = Path(sys.argv[1]).parent / "nothing built ahead"
library = cpu_build.load_library(cpu_build.INSTRUCTION_SETS[-1], 4)
print(library.answer(), library._name)
"""

# Ends only when two of it have compiled, so that neither process finds the other's library already there.
MEETING_COMPILER = """#!/bin/sh
g++ "$@" || exit
[ "$1" = --version ] && exit
touch "$MEETING/$$"
for try in $(seq 600); do
    [ "$(ls "$MEETING" | wc -l)" -ge 2 ] && exit
    sleep 0.05
done
exit 1
"""


def test_two_processes_that_build_at_once_do_not_disturb_each_other(answer: Path, tmp_path: Path) -> None:
    meeting, compiler, home = (tmp_path / name for name in ("meeting", "compiler", "home"))
    meeting.mkdir()
    compiler.write_text(MEETING_COMPILER)
    compiler.chmod(0o700)
    folders = {"MEETING": str(meeting), "XDG_CACHE_HOME": str(home), "TMPDIR": str(tmp_path)}
    environment = {**os.environ, "CXX": str(compiler), **folders}
    command = [sys.executable, "-c", BUILD, str(answer)]
    builders = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    (output, errors), other = [builder.communicate() for builder in builders]
    assert other[0] == output, errors + other[1]
    assert len(list(meeting.iterdir())) == 2
    (library,) = (home / "chatsrv" / "kernels").iterdir()
    assert output == f"42 {library}\n"


ENDLESS_COMPILER = """#!/bin/sh
[ "$1" = --version ] && exit
sleep 600 &
echo $! > "$CHILD.new" && mv "$CHILD.new" "$CHILD"
wait
"""


def test_a_compiler_that_nobody_waits_for_is_ended_with_what_it_has_started(
    answer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler, child = tmp_path / "compiler", tmp_path / "child"
    compiler.write_text(ENDLESS_COMPILER)
    compiler.chmod(0o700)
    for name, path in {"CXX": compiler, "CHILD": child, "XDG_CACHE_HOME": tmp_path / "home"}.items():
        monkeypatch.setenv(name, str(path))
    with ThreadPoolExecutor(1) as thread:
        building = thread.submit(load_library, INSTRUCTION_SETS[-1], 4)
        while not child.exists():
            time.sleep(0.01)
        cpu_build.stop_compiling()
        with pytest.raises(cpu_build.BuildStopped):
            building.result(60)
    assert list((tmp_path / "home" / "chatsrv" / "kernels").iterdir()) == []
    while _is_running(int(child.read_text())):
        time.sleep(0.01)


def _is_running(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/cmdline").read_bytes() != b""  # of one that nobody has reaped it is empty
    except OSError:
        return False


def _nothing_can_be_made(home: Path) -> None:
    home.touch()


def _read_only(home: Path) -> None:
    (home / "chatsrv" / "kernels").mkdir(parents=True)
    (home / "chatsrv" / "kernels").chmod(0o555)


def _others_may_write(home: Path) -> None:
    (home / "chatsrv" / "kernels").mkdir(parents=True)
    (home / "chatsrv" / "kernels").chmod(0o777)


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder for temporary files; modes of files bind the tests even where root runs them."""
    access = os.access

    def by_mode(path: str | Path, mode: int) -> bool:
        return access(path, mode) and (mode != os.W_OK or bool(Path(path).stat().st_mode & 0o222))

    monkeypatch.setattr(os, "access", by_mode)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("spoil", [_nothing_can_be_made, _read_only, _others_may_write])
def test_where_home_cannot_be_used_a_temporary_folder_serves(
    spoil: Callable[[Path], None], answer: Path, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    spoil(home)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    library = load_library(INSTRUCTION_SETS[-1], 4)
    assert library.answer() == 42
    folder = Path(library._name).parent
    assert folder.parent == temporary
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not list(home.rglob("*.so"))


def test_without_any_folder_the_error_says_so(
    answer: Path, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _nothing_can_be_made(tmp_path / "home")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    (temporary / f"chatsrv-kernels-{os.getuid()}").touch()
    with pytest.raises(cpu_build.BuildError, match="no folder for compiled kernels can be used"):
        load_library(INSTRUCTION_SETS[-1], 4)
