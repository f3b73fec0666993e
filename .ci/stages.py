"""Run the build stages of the Dockerfile without a container engine, as an ordinary user.

A clean folder stands for the file system of each stage, and a fresh environment of this Python for the base image. What
apt-get would install has to be on the machine. It takes minutes and downloads all that an image needs.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).parent.parent
NOBODY = 65534
OWN_PATHS = re.compile(r"(?<![\w./])/(?=(?:src|venv)\b)")
"""Where the stages work: these begin below the folder of the stage."""


class Stage:
    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root
        self._environment = {**os.environ, "HOME": str(root)}
        root.mkdir()
        self._hand_over()
        self.run(f"{sys.executable} -m venv base")
        self._environment["PATH"] = f"{root}/base/bin:{os.environ['PATH']}"

    def do(self, instruction: str, others: dict[str, Stage]) -> None:
        word, _, rest = instruction.partition(" ")
        if word == "COPY":
            self._copy(rest.split(), others)
        elif word == "WORKDIR":
            self._folder = self._root / rest.strip("/")
            self._folder.mkdir(exist_ok=True)
        elif word == "ENV":
            name, _, value = self._own(rest).partition("=")
            self._environment[name] = value.replace(f"${name}", self._environment.get(name, ""))
        elif word == "RUN" and not rest.startswith("apt-get "):
            self.run(self._own(rest))

    def run(self, command: str) -> None:
        print(f"==> {command}", flush=True)
        user = NOBODY if os.getuid() == 0 else None
        subprocess.run(
            ["sh", "-c", command], cwd=self._folder, env=self._environment, user=user, group=user, check=True
        )

    def _copy(self, words: list[str], others: dict[str, Stage]) -> None:
        *sources, target = words
        if sources[0].startswith("--from="):
            far = others[sources[0].removeprefix("--from=")]._root / sources[1].strip("/")
            shutil.copytree(far, self._folder / target, dirs_exist_ok=True)
        else:
            for path in _tracked(sources):
                # As in every one of our lines, a folder keeps its name, and a file lies in the folder that is named.
                place = self._folder / (path if (PROJECT / sources[0]).is_dir() else Path(target) / path.name)
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(PROJECT / path, place)
        self._hand_over()

    def _own(self, text: str) -> str:
        return OWN_PATHS.sub(f"{self._root}/", text)

    def _hand_over(self) -> None:
        """To the user who runs the commands."""
        if os.getuid() == 0:
            subprocess.run(["chown", "-R", f"{NOBODY}:{NOBODY}", str(self._root)], check=True)


def _tracked(sources: list[str]) -> list[Path]:
    command = ["git", "ls-files", "--", *sources]
    return [Path(line) for line in subprocess.check_output(command, cwd=PROJECT, text=True).splitlines()]


def instructions() -> list[str]:
    """Of the Dockerfile, continued lines joined, comments left out."""
    lines = (PROJECT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if line.strip() and not line.startswith("#")]
    return re.sub(r"\\\n\s*", "", "\n".join(kept)).splitlines()


def main() -> int:
    """Stop before the last stage: it only copies, and runs as an image does."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        stages: dict[str, Stage] = {}
        for instruction in instructions():
            if found := re.fullmatch(r"FROM \S+( AS (\w+))?", instruction):
                if found[2] is None:
                    break
                stage = stages[found[2]] = Stage(Path(folder) / found[2])
            elif stages:
                stage.do(instruction, stages)
        stage.run("chatsrv models && chatsrv key ada user")
    return 0


if __name__ == "__main__":
    sys.exit(main())
