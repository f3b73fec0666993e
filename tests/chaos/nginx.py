"""A real nginx with the configuration that is shipped."""

from __future__ import annotations

import getpass
import subprocess
from pathlib import Path

from tests.chatsrv.conftest import free_port
from tests.machine import need_program

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "nginx.conf"


class Nginx:
    """Of the configuration only addresses and folders are others.

    Args:
        ports: where the two servers are.
    """

    def __init__(self, folder: Path, ports: list[int]) -> None:
        self.port = free_port()
        addresses = {
            "chatsrv:8000": f"127.0.0.1:{ports[0]}",
            "chatsrv-2:8000": f"127.0.0.1:{ports[1]}",
            "listen 8080": f"listen 127.0.0.1:{self.port}",
            " /tmp/": f" {folder}/",
        }
        text = CONFIGURATION.read_text(encoding="utf-8")
        for shipped, ours in addresses.items():
            assert shipped in text
            text = text.replace(shipped, ours)
        (folder / "nginx.conf").write_text(text, encoding="utf-8")
        # Where root starts it, its workers would be somebody who may not write in our folder.
        directives = f"daemon off; user {getpass.getuser()};"
        command = [need_program("nginx"), "-c", str(folder / "nginx.conf"), "-e", "stderr", "-g", directives]
        with (folder / "nginx.log").open("wb") as log:
            self._process = subprocess.Popen(command, stderr=log)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
