"""Look for known weaknesses in what is installed, where the registries tell of them.

A registry that does not answer is no failure: it is said in one line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

TIMEOUT_S = 120
NO_ANSWER = "audit: {} was skipped, for its registry does not tell of known weaknesses"


def main() -> int:
    """Exit status 1 if a weakness is known."""
    found = [*python_weaknesses(_json(["pip-audit", "--local", "--timeout", "5", "--format", "json"]))]
    found += npm_weaknesses(_json(["npm", "--prefix", "web", "audit", "--json"]))
    print(*found, sep="\n")
    return 1 if any(not line.startswith("audit: ") for line in found) else 0


def python_weaknesses(report: Any) -> list[str]:
    """One line for each, of the report of pip-audit; or a line that says how much was looked at."""
    packages = report.get("dependencies", []) if isinstance(report, dict) else []
    audited = [package for package in packages if "skip_reason" not in package]
    if not audited:
        return [NO_ANSWER.format("Python")]
    return [
        f"{package['name']} {package['version']}: {weakness['id']}, fixed in {weakness['fix_versions']}"
        for package in audited
        for weakness in package["vulns"]
    ] or [f"audit: nothing is known of {len(audited)} Python packages"]


def npm_weaknesses(report: Any) -> list[str]:
    """One line for each package, of the report of npm audit; or a line that says that it was looked at."""
    if not isinstance(report, dict) or "vulnerabilities" not in report:
        return [NO_ANSWER.format("the page")]
    return [f"{name}: {weakness['severity']}" for name, weakness in report["vulnerabilities"].items()] or [
        "audit: nothing is known of the page's packages"
    ]


def _json(command: Sequence[str]) -> Any:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        return json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, json.JSONDecodeError):
        return None


if __name__ == "__main__":
    sys.exit(main())
