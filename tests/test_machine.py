"""The rule of ``tests/machine.py``: a missing part skips a test on a developer's machine and fails it in CI."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.machine import need_program


def test_a_program_that_is_there_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    python = Path(sys.executable)
    monkeypatch.setenv("PATH", str(python.parent))
    assert Path(need_program(python.name)) == python


def test_without_a_program_a_developer_sees_a_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-program is not on this machine"):
        need_program("no-such-program")


def test_without_a_program_ci_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-program is not on this machine"):
        need_program("no-such-program")
