"""What a figure was measured on: a figure without its machine and versions says nothing."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path

VERSION = "import sys; from importlib.metadata import version; print(version(sys.argv[1]))"


def describe() -> str:
    """Processor, cores this process may use, memory, and Python, in one line."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{_processor()}, {cores} cores, {memory_gib:.0f} GiB, Python {platform.python_version()}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def distribution_version(python: Path, distribution: str) -> str:
    """Version of a distribution as the given interpreter sees it."""
    done = subprocess.run([python, "-c", VERSION, distribution], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
