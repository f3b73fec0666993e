"""The lock names every package that setup installs, so that a fresh machine gets what was tested."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
GPU_RUNTIME = re.compile(r"(nvidia|cuda)-.*")  # torch itself pins what it wants of these, where it wants them


def _locked() -> dict[str, Requirement]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    requirements = [Requirement(line) for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(requirement.name): requirement for requirement in requirements}


def _declared() -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    groups = [project["dependencies"], *project["optional-dependencies"].values()]
    requirements = [Requirement(line) for group in groups for line in group]
    return [requirement for requirement in requirements if requirement.name != "chatsrv"]


def _installed(requirement: Requirement, found: dict[str, Distribution], seen: set[str]) -> None:
    """Collect into ``found`` what ``requirement`` brings in, itself and all that it asks for."""
    name = canonicalize_name(requirement.name)
    key = f"{name}[{','.join(sorted(requirement.extras))}]"
    if key in seen or GPU_RUNTIME.fullmatch(name):
        return
    seen.add(key)
    try:
        found[name] = distribution(name)
    except PackageNotFoundError:
        return
    for text in found[name].requires or []:
        inner = Requirement(text)
        extras = requirement.extras or {""}
        if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras):
            _installed(inner, found, seen)


def test_every_installed_dependency_is_locked_at_its_version() -> None:
    found: dict[str, Distribution] = {}
    for requirement in _declared():
        _installed(requirement, found, set())
    locked = _locked()
    assert found.keys() >= {"torch", "transformers", "tokenizers", "starlette", "pytest"}
    for name, dist in found.items():
        assert name in locked, f"{name} {dist.version} is missing in constraints.txt"
        assert dist.version in locked[name].specifier, f"{name} {dist.version} is not what constraints.txt says"


def test_every_locked_version_is_one_version() -> None:
    for name, requirement in _locked().items():
        assert re.fullmatch(r"==[^,]+", str(requirement.specifier)), f"{name} is not pinned"
