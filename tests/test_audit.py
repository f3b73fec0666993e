"""The audit fails for what is known, and only for that."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PATH = Path(__file__).parent.parent / ".ci" / "audit.py"

CLEAN = {"dependencies": [{"name": "a", "version": "1", "vulns": []}, {"name": "b", "skip_reason": "unknown"}]}
WEAK = {"dependencies": [{"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}]}
SILENT = {"dependencies": [{"name": "a", "skip_reason": "not found"}]}
WEAK_PAGE = {"vulnerabilities": {"a": {"severity": "high"}}}


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("python", "page", "status", "says"),
    [
        (CLEAN, {"vulnerabilities": {}}, 0, "nothing is known of 1 Python packages"),
        (WEAK, {"vulnerabilities": {}}, 1, "a 1: CVE-1, fixed in ['2']"),
        (CLEAN, WEAK_PAGE, 1, "a: high"),
        (SILENT, {"message": "405"}, 0, "Python was skipped"),
        (None, None, 0, "the page was skipped"),
    ],
)
def test_what_is_known_fails_and_silence_is_told(
    audit: ModuleType,
    python: Any,
    page: Any,
    status: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(audit, "_json", lambda command: python if command[0] == "pip-audit" else page)
    assert audit.main() == status
    assert says in capsys.readouterr().out
