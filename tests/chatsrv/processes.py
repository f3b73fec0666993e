"""Real server processes on a tiny random model, and clients that remember what they have seen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.engine.models.tiny import save_tiny

READY = "chatsrv: ready at "
MAX_MODEL_LEN = 2048
CHAT_TEMPLATE = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant: "


def save_model(folder: Path) -> Path:
    """A model whose answers have no end of their own and a few thousand tokens of room."""
    save_tiny(folder, "llama", max_position_embeddings=MAX_MODEL_LEN)
    return folder


class ServerProcess(AbstractContextManager["ServerProcess"]):
    """``chatsrv serve``; killed at the end of the test if it still runs."""

    def __init__(self, model: Path, data: Path, compiler: str = "none", **settings: Any) -> None:
        common = {"port": 0, "data_dir": data, "log_level": "warning"}
        engine = {"model": model, "dtype": "float32", "chat_template": CHAT_TEMPLATE, "num_blocks": 2048}
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in (common | engine | settings).items()]
        command = [sys.executable, "-m", "chatsrv.cli", "serve", *flags]
        # Plain PyTorch is fast enough for this model, and nothing has to be compiled first.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "CXX": compiler, "XDG_CACHE_HOME": str(data)}
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        self.url = ""

    def __exit__(self, *exc_info: object) -> None:
        self.kill()

    @property
    def ws_url(self) -> str:
        return self.url.replace("http", "ws", 1) + "/v1/responses"

    def ready(self) -> ServerProcess:
        """Wait until it serves; processes that start together wait together."""
        assert self._process.stdout is not None
        line = next((line for line in self._process.stdout if line.startswith(READY)), "")
        assert line, "the server ended before it was ready"
        self.url = line.removeprefix(READY).strip()
        return self

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """The exit status."""
        return self._process.wait(60)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
