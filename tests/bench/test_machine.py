"""What a figure was measured on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from bench.machine import describe, distribution_version


def test_the_machine_is_told_in_one_line() -> None:
    line = describe()
    assert f"{len(os.sched_getaffinity(0))} cores" in line
    assert "GiB" in line
    assert "\n" not in line


def test_versions_are_those_of_the_asked_interpreter() -> None:
    assert distribution_version(Path(sys.executable), "pytest") == pytest.__version__
    assert distribution_version(Path(sys.executable), "no-such-distribution") == "unknown"
