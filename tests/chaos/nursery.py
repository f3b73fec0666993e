"""Starts server processes quickly: imports everything once, then forks a server for each line on its input.

A line is JSON of the server's settings; the answer is the process id on its output.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from chatsrv.seam import EngineSeam
from chatsrv.server import Server
from chatsrv.settings import ServerSettings
from tests.fakes import FakeEngine

DELAY_S = 0.004


class ForgetfulEngine(FakeEngine):
    """One whose own memory does not grow with what it is asked."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(delay_s=delay_s)
        self.submissions = deque(maxlen=100)  # type: ignore[assignment]

    def remember(self, salt: bytes, tokens: Sequence[int]) -> None:
        pass


@asynccontextmanager
async def make_engine() -> AsyncIterator[EngineSeam]:
    yield ForgetfulEngine(delay_s=DELAY_S)


def serve(given: dict[str, Any]) -> None:
    given["data_dir"] = Path(given["data_dir"])
    settings = ServerSettings(**{"drain_timeout_s": 0.3, "log_level": "error"} | given)
    asyncio.run(Server(settings, make_engine).run(handle_signals=True))


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are killed
    for line in sys.stdin:
        process_id = os.fork()
        if process_id == 0:
            os.dup2(os.open(os.devnull, os.O_RDWR), 1)
            serve(json.loads(line))
            os._exit(0)
        print(process_id, flush=True)


if __name__ == "__main__":
    main()
