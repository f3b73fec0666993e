"""The doors of the packages: everything that ``__all__`` promises is there, documented, and nothing else leaks out."""

from __future__ import annotations

import inspect
from types import ModuleType

import pytest

import engine
import kernels

DOORS = (engine, kernels)


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_the_list_is_sorted_and_complete(door: ModuleType) -> None:
    listed = [name for name in door.__all__ if not name.isupper()]
    assert listed == sorted(listed)
    assert [name for name in door.__all__ if not hasattr(door, name)] == []
    own = {name for name, value in vars(door).items() if _is_ours(door, name, value)}
    assert own - set(door.__all__) == _private(door)


def _is_ours(door: ModuleType, name: str, value: object) -> bool:
    module = getattr(value, "__module__", "") or ""
    return not name.startswith("_") and module.startswith(door.__name__) and not inspect.ismodule(value)


def _private(door: ModuleType) -> set[str]:
    """What the kernels' door uses itself without offering it."""
    return {"AttentionOptions", "backend_for"} if door is kernels else set()


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_everything_offered_is_documented(door: ModuleType) -> None:
    for name in door.__all__:
        value = getattr(door, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert (value.__doc__ or "").strip(), f"{door.__name__}.{name}"
