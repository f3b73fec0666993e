"""``chatsrv serve`` as a process of its own, measured from outside: CPU time, memory, commands of the store."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
import redis

READY = "chatsrv: ready at "
STOP_TIMEOUT_S = 60


@dataclass(frozen=True, slots=True)
class Spent:
    """What the server has used since it started.

    Attributes:
        loop_cpu_s: CPU time of the event loop's thread; the model and its kernels run in others.
        engine_s: what of it the engine took to plan its steps and to hand out their results.
        num_commands: that the store has processed.
    """

    loop_cpu_s: float
    engine_s: float
    num_commands: int


class OwnServer:
    """Runs while it is entered, on a free port and with an empty data folder.

    Args:
        options: further flags of ``chatsrv serve``.
    """

    def __init__(self, options: Sequence[str] = ()) -> None:
        self._options = options
        self.base = ""
        self.exit_status: int | None = None

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="bench-")
        where = ["--port", "0", "--data-dir", self._folder.name, "--log-level", "warning"]
        command = [sys.executable, "-m", "chatsrv.cli", "serve", *where, *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        ready = next((line for line in self._process.stdout if line.startswith(READY)), None)
        if ready is None:
            self._process.stdout.close()
            self._folder.cleanup()
            raise RuntimeError(f"the server ended before it was ready, with status {self._process.wait()}")
        self.base = ready.removeprefix(READY).strip() + "/v1"
        self._store = redis.Redis(unix_socket_path=f"{self._folder.name}/store/store.sock")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._store.close()
        self._process.send_signal(signal.SIGTERM)
        self.exit_status = self._process.wait(STOP_TIMEOUT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._folder.cleanup()

    def spent(self) -> Spent:
        """So far; asking costs one command."""
        tasks = Path(f"/proc/{self._process.pid}/task")
        # The first thread has the process's id, and runs the event loop.
        nanoseconds = int((tasks / str(self._process.pid) / "schedstat").read_text().split()[0])
        return Spent(nanoseconds / 1e9, self._engine_s(), self._store.info("stats")["total_commands_processed"])

    def _engine_s(self) -> float:
        metrics = httpx.get(self.base.replace("/v1", "/metrics"), trust_env=False).text
        parts = re.findall(r'chatsrv_engine_step_seconds_total{part="(?:schedule|apply)"} (\S+)', metrics)
        return sum(map(float, parts))

    def resident_bytes(self) -> int:
        """Memory of the process that is in RAM now."""
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
