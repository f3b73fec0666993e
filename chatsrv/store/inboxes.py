"""Work that one server sends to another: an inbox for each process, and a stream of results for each piece of work."""

from __future__ import annotations

from typing import Any

from chatsrv.store import keys
from chatsrv.store.reachable import Reachable, unreachable

BLOCK_MS = 1000
MAX_INBOX = 10_000


class Inboxes:
    """Messages are bytes; what they say is their readers' business.

    Args:
        process_id: whose inbox is read here.
    """

    def __init__(self, client: Any, reachable: Reachable, process_id: str) -> None:
        self._client = client
        self._reachable = reachable
        self._process_id = process_id
        self._read_up_to: bytes | str = "0-0"

    async def send(self, process_id: str, message: bytes) -> None:
        """Put a message into a process's inbox."""
        key = keys.inbox(process_id)
        pipe = self._client.pipeline(transaction=True)
        pipe.xadd(key, {"message": message}, maxlen=MAX_INBOX)
        pipe.expire(key, keys.INBOX_TTL_S)
        with self._reachable():
            await pipe.execute()

    async def receive(self) -> list[bytes]:
        """New messages in this process's inbox; waits a second for some to come."""
        with self._reachable():
            streams = await self._client.xread({keys.inbox(self._process_id): self._read_up_to}, block=BLOCK_MS)
        entries = streams[0][1] if streams else []
        if entries:
            self._read_up_to = entries[-1][0]
        return [fields.get(b"message", b"") for _, fields in entries]

    async def put_result(self, work_id: str, number: int, result: bytes) -> None:
        """Append the ``number``-th result, from 1 on, of a piece of work."""
        key = keys.results(work_id)
        pipe = self._client.pipeline(transaction=True)
        pipe.xadd(key, {"result": result}, id=f"{number}-0")
        pipe.expire(key, keys.INBOX_TTL_S)
        with self._reachable():
            await pipe.execute()

    async def results(self, work_id: str, num_read: int) -> list[bytes]:
        """Results after the first ``num_read``; waits a second for some to come.

        Raises:
            Unavailable: the store cannot be reached, or has lost some.
        """
        with self._reachable():
            streams = await self._client.xread({keys.results(work_id): f"{num_read}-0"}, block=BLOCK_MS)
        entries = streams[0][1] if streams else []
        numbers = [int(entry_id.partition(b"-")[0]) for entry_id, _ in entries]
        if numbers != list(range(num_read + 1, num_read + 1 + len(entries))):
            raise unreachable()
        return [fields[b"result"] for _, fields in entries]
