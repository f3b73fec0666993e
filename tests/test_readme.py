"""The README promises only what is there: settings, make targets, links, code that compiles.

Write the settings table anew with ``python -m tests.test_readme``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chatsrv.settings import ServerSettings, SettingsReader
from engine import EngineConfig

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
BEGIN, END = "<!-- settings: written by tests/test_readme.py -->\n", "<!-- end of settings -->"


def settings_table() -> str:
    """The settings as a Markdown table; the flag of CHATSRV_NAME is --name."""
    rows = [
        f"| `{variable}` | {f'`{default}`' if default not in ('auto', 'no default') else default} | {text} |"
        for variable, _, default, text in SettingsReader(ServerSettings, EngineConfig).table()
    ]
    return "\n".join(["| setting | default | |", "|---|---|---|", *rows]) + "\n"


def _with_settings(text: str) -> str:
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return head + BEGIN + settings_table() + END + tail


def _documents() -> list[Path]:
    return [README, *sorted((ROOT / "docs").glob("*.md"))]


def test_the_settings_table_is_the_settings() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == _with_settings(text), "run: python -m tests.test_readme"


@pytest.mark.parametrize("document", _documents(), ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize("document", _documents(), ids=lambda path: path.name)
def test_named_files_and_targets_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for path in re.findall(r"`((?:bench|chatsrv|engine|kernels|tests|web|docs|deploy)/[\w./-]+)`", text):
        assert (ROOT / path).exists() or path.startswith("web/dist"), f"{document.name} names {path}"
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for target in re.findall(r"(?<![\w`])make ([a-z]+)(?=`|\s+#)", text):
        assert target in targets, f"{document.name} names make {target}"


def test_python_examples_compile() -> None:
    examples = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert examples
    for number, example in enumerate(examples):
        compile(example, f"README example {number}", "exec")


if __name__ == "__main__":
    README.write_text(_with_settings(README.read_text(encoding="utf-8")), encoding="utf-8")
