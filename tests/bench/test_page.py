"""The page's benchmark, as it is started by hand."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.machine import need_program


def test_first_paint_and_readiness_are_measured_in_a_browser() -> None:
    # In a process of its own, since the browser's driver leaves an event loop in its.
    command = [sys.executable, "-m", "bench.page", "--rounds", "2", "--browser", need_program("chromium")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert 0 < found["first_paint_ms"] <= found["longest_first_paint_ms"]
    assert found["ready_ms"] > 0


def test_a_browser_that_is_not_there_is_named() -> None:
    command = [sys.executable, "-m", "bench.page", "--browser", "no-such-browser"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "no-such-browser" in done.stderr
