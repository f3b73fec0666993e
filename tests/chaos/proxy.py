"""A bad network: late, in small pieces, cut off, or silently dead."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress

CHUNK_BYTES = 700


class Proxy:
    """Forwards connections to a port that may change, badly.

    Args:
        target: the port to forward the next connection to.
    """

    def __init__(self, target: Callable[[], int], randomness: random.Random) -> None:
        self._target = target
        self._random = randomness
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset some of the connections."""
        for writer in self._random.sample(sorted(self._writers, key=id), len(self._writers) // 3):
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target())
        except OSError:
            writer.transport.abort()
            return
        goes_silent = self._random.random() < 0.05
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            self._writers.add(sink)
            task = asyncio.create_task(self._pump(source, sink, goes_silent))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, goes_silent: bool) -> None:
        num_bytes = 0
        with suppress(OSError):
            while data := await source.read(CHUNK_BYTES):
                num_bytes += len(data)
                if goes_silent and num_bytes > 10 * CHUNK_BYTES:
                    continue  # half-open: both ends believe that the other is there
                if self._random.random() < 0.05:
                    await asyncio.sleep(self._random.random() * 0.05)
                sink.write(data)
                await sink.drain()
        self._writers.discard(sink)
        sink.transport.abort()
