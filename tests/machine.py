"""Parts of the machine that only some tests need: programs, a GPU.

On a developer's machine a test without its part is skipped with the reason. In CI (``CI=true``), where ``make test``
brings every part, a missing one is a failure, so that a green run has run everything.
"""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def missing(part: str) -> NoReturn:
    """End the running test because ``part`` is not here: skipped, or failed in CI."""
    reason = f"{part} is not on this machine"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def need_program(name: str) -> str:
    """Path of a program on this machine, or the end of the running test."""
    return shutil.which(name) or shutil.which(name, path="/usr/sbin") or missing(name)
