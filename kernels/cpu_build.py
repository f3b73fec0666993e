"""Compiles the C++ kernels at first use, for this machine's instruction set, into the user's cache folder.

The library's name holds a hash of the sources, the compiler and its flags: a change of any of them builds anew, and a
home folder shared by unlike machines holds one library for each. Two processes that build at once do not disturb each
other: each compiles to a file of its own and renames it, and the last one wins with equal content.

``python -m kernels.cpu_build`` builds for every instruction set ahead of time, into the package itself: for images and
packages that go to machines without a compiler.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
SOURCES = tuple(FOLDER / f"cpu_{name}.cpp" for name in ("attention", "decoder", "elementwise", "linear"))
HEADERS = tuple(FOLDER / f"cpu_{name}.h" for name in ("bytes", "calls", "vector"))
PREBUILT_FOLDER = FOLDER / "prebuilt"
FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-ffp-contract=fast", "-fopenmp", "-Wno-psabi")
MAX_COMPILE_S = 300


class BuildError(Exception):
    """There is no compiler, or it failed; the message says how."""


class BuildStopped(Exception):
    """Somebody does not want to wait for the compiler any more."""


_compilers: set[subprocess.Popen[str]] = set()
"""Those that run and are still wanted."""


def stop_compiling() -> None:
    """End the compilers that other threads wait for; they get ``BuildStopped``."""
    while _compilers:
        _end(_compilers.pop())


@dataclass(frozen=True, slots=True)
class InstructionSet:
    """What the compiler may use, on CPUs that have all of ``cpu_flags`` (as Linux names them)."""

    name: str
    lanes: int
    cpu_flags: frozenset[str] = frozenset()
    compiler_flags: tuple[str, ...] = ()


_AVX2 = ("avx2", "fma", "f16c")
_AVX2_FLAGS = tuple(f"-m{flag}" for flag in _AVX2)
_AVX512 = ("avx512f", "avx512bw", "avx512vl", "avx512dq")
_AVX512_FLAGS = (*_AVX2_FLAGS, *(f"-m{flag}" for flag in _AVX512))
INSTRUCTION_SETS = (
    InstructionSet(
        "avx512_bf16",
        16,
        frozenset((*_AVX512, "avx512_vnni", "avx512_bf16")),
        (*_AVX512_FLAGS, "-mavx512vnni", "-mavx512bf16"),
    ),
    InstructionSet("avx512_vnni", 16, frozenset((*_AVX512, "avx512_vnni")), (*_AVX512_FLAGS, "-mavx512vnni")),
    InstructionSet("avx512", 16, frozenset(_AVX512), _AVX512_FLAGS),
    InstructionSet("avx_vnni", 8, frozenset((*_AVX2, "avx_vnni")), (*_AVX2_FLAGS, "-mavxvnni")),
    InstructionSet("avx2", 8, frozenset(_AVX2), _AVX2_FLAGS),
    InstructionSet("baseline", 4),
)


def instruction_sets() -> list[InstructionSet]:
    """Those that this CPU has, best first."""
    cpu_flags = _cpu_flags()
    return [candidate for candidate in INSTRUCTION_SETS if candidate.cpu_flags <= cpu_flags]


@functools.cache
def load_library(instruction_set: InstructionSet, lanes: int) -> ctypes.CDLL:
    """The compiled kernels with vectors of so many 32-bit lanes.

    Raises:
        BuildError: they could not be compiled or loaded.
    """
    prebuilt = _prebuilt(instruction_set, lanes)
    if prebuilt.exists():
        return ctypes.CDLL(str(prebuilt))
    command = _command(instruction_set, lanes)
    name = f"kernels-{instruction_set.name}-{lanes}-{_digest(command)}.so"
    failures = []
    for folder in _cache_folders():
        try:
            library = folder / name
            if not library.exists():
                _compile(command, library)
            return ctypes.CDLL(str(library))
        except OSError as error:
            failures.append(f"{folder}: {error}")
    raise BuildError(f"no folder for compiled kernels can be used ({'; '.join(failures)})")


def build_ahead() -> list[Path]:
    """Build for every instruction set of this architecture; one that runs on other machines is built all the same.

    Raises:
        BuildError: they could not be compiled.
    """
    PREBUILT_FOLDER.mkdir(exist_ok=True)
    targets = INSTRUCTION_SETS if _is_x86() else instruction_sets()
    wanted = sorted({(target, lanes) for target in targets for lanes in (target.lanes, min(target.lanes, 8))}, key=str)
    libraries = [_prebuilt(target, lanes) for target, lanes in wanted]
    for (target, lanes), library in zip(wanted, libraries, strict=True):
        _compile(_command(target, lanes), library)
        library.chmod(0o755)  # whoever runs the image need not be who has built it
    return libraries


def _prebuilt(instruction_set: InstructionSet, lanes: int) -> Path:
    return PREBUILT_FOLDER / f"kernels-{instruction_set.name}-{lanes}-{_source_digest().hexdigest()[:16]}.so"


def _command(instruction_set: InstructionSet, lanes: int) -> list[str]:
    runtime = _openmp_runtime()
    flags = (*FLAGS, *instruction_set.compiler_flags, f"-DLANES={lanes}")
    return [find_compiler(), *flags, *map(str, SOURCES), *([str(runtime)] if runtime else [])]


def find_compiler() -> str:
    """Path of a C++ compiler: the one that CXX names, or the first that is installed.

    Raises:
        BuildError: there is none.
    """
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    for name in names:
        if path := shutil.which(name):
            return path
    raise BuildError(f"no C++ compiler found ({', '.join(names)})")


def _compile(command: list[str], library: Path) -> None:
    descriptor, unfinished = tempfile.mkstemp(dir=library.parent, suffix=".unfinished")
    os.close(descriptor)
    try:
        _run([*command, "-o", unfinished])
        os.chmod(unfinished, 0o700)
        os.replace(unfinished, library)
    finally:
        Path(unfinished).unlink(missing_ok=True)


def _run(command: list[str]) -> None:
    # In a session of its own, so that it can be ended together with the processes that it starts.
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as compiler:
        _compilers.add(compiler)
        try:
            _, errors = compiler.communicate(timeout=MAX_COMPILE_S)
        except subprocess.TimeoutExpired as error:
            raise BuildError(f"{command[0]} took more than {MAX_COMPILE_S} s") from error
        finally:
            is_wanted = compiler in _compilers
            _compilers.discard(compiler)
            if compiler.returncode is None:
                _end(compiler)
    if not is_wanted:
        raise BuildStopped
    if compiler.returncode:
        raise BuildError(f"{command[0]} failed: {errors.strip()[-2000:]}")


def _end(compiler: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        os.killpg(compiler.pid, signal.SIGTERM)


def _digest(command: list[str]) -> str:
    version = subprocess.run([command[0], "--version"], capture_output=True, timeout=MAX_COMPILE_S, check=False).stdout
    digest = _source_digest()
    for part in ("\0".join(command).encode(), version):
        digest.update(hashlib.sha256(part).digest())
    return digest.hexdigest()[:16]


def _source_digest() -> hashlib._Hash:
    digest = hashlib.sha256()
    for path in (*SOURCES, *HEADERS):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest


def _cache_folders() -> Iterator[Path]:
    """The user's cache folder, then one among the temporary files, where home is missing or read-only."""
    yield from (
        folder
        for folder in (
            Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "chatsrv" / "kernels",
            Path(tempfile.gettempdir()) / f"chatsrv-kernels-{os.getuid()}",
        )
        if _is_ours(folder)
    )


def _is_ours(folder: Path) -> bool:
    """Whether nobody else can put a library into the folder; it is made where it is missing."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return False
    return (
        folder.is_dir() and status.st_uid == os.getuid() and not status.st_mode & 0o022 and os.access(folder, os.W_OK)
    )


def _cpu_flags() -> frozenset[str]:
    if not _is_x86():
        return frozenset()
    try:
        description = Path("/proc/cpuinfo").read_text()
    except OSError:
        return frozenset()
    found = re.search(r"^flags\s*:(.*)$", description, re.MULTILINE)
    return frozenset(found.group(1).split()) if found else frozenset()


def _is_x86() -> bool:
    return platform.machine().lower() in ("x86_64", "amd64")


def _openmp_runtime() -> Path | None:
    """The OpenMP library that torch has loaded, whatever its name: a second one would bring threads of its own."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return None
    return find_openmp(maps)


def find_openmp(maps: str) -> Path | None:
    """The first OpenMP library in the text of a process's memory map; its path may hold spaces."""
    found = re.search(r"\s(/.*/lib(?:gomp|iomp5|omp)\b[^/\n]*\.so[^/\n]*)$", maps, re.MULTILINE)
    return Path(found.group(1)) if found else None


if __name__ == "__main__":
    for built in build_ahead():
        print(built)
