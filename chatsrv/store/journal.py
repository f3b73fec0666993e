"""Writes behind the token path: gathered for a moment, sent as one transaction, kept until the store has them.

What a generation writes must neither slow it down nor get lost when the store is away for a while. So nobody waits for
a write unless they ask to; batches go out in order, one at a time, and a batch that failed is sent again, unchanged,
until it arrives. Every command of a batch is idempotent, or (appending events) refused when repeated. What is urgent
goes out at once, and takes along what else its hash slot has waiting, but not what others have: with many answers
running something is always urgent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import RedisCluster
from redis.exceptions import RedisError

from chatsrv.ids import tag_of
from chatsrv.store import keys
from chatsrv.store.leases import Leases
from chatsrv.tasks import end
from chatsrv.wire.events import Entry

log = logging.getLogger("chatsrv.store")

Command = tuple[Any, ...]

FLUSH_INTERVAL_S = 0.2
RETRY_INTERVAL_S = 0.5
MAX_BUFFERED_BYTES = 64 * 1024 * 1024


@dataclass(slots=True)
class _Group:
    """Commands of one hash slot, and the events of its responses, that wait together."""

    commands: list[Command] = field(default_factory=list)
    events: dict[str, list[Entry]] = field(default_factory=dict)
    num_bytes: int = 0
    is_urgent: bool = False
    actions: list[Callable[[], None]] = field(default_factory=list)
    written: asyncio.Event = field(default_factory=asyncio.Event)


_Batch = dict[str, _Group]


class Journal:
    """The queue of writes.

    Args:
        events_ttl_s: lifetime of an event log after its last event.
        leases: asked before each batch whether its responses are still ours.
        on_cancels: called with the ids of responses that another process was asked to cancel.
    """

    def __init__(
        self, client: Any, events_ttl_s: int, leases: Leases, on_cancels: Callable[[Iterable[str]], None]
    ) -> None:
        self._client = client
        self._events_ttl_s = events_ttl_s
        self._leases = leases
        self._on_cancels = on_cancels
        self._waiting: _Batch = {}
        self._in_flight: _Batch = {}
        self._num_buffered_bytes = 0
        self._news = asyncio.Event()
        self._urgent = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.is_failing = False

    @property
    def is_full(self) -> bool:
        """Whether what waits has all the memory that it may: the store has been away for long."""
        return self._num_buffered_bytes >= MAX_BUFFERED_BYTES

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="store journal")

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def close(self, timeout_s: float = 5.0) -> None:
        """Write what is left, if the store takes it in time."""
        if self._task is None:
            return
        groups = [*self._in_flight.values(), *self._waiting.values()]
        written = await asyncio.gather(*(self._written(group, timeout_s) for group in groups))
        if num_lost := written.count(False):
            log.error("the store is away: %d writes are lost", num_lost)
        await end([self._task])

    def write(
        self, slot: str, commands: Iterable[Command], is_urgent: bool = True, then: Callable[[], None] | None = None
    ) -> None:
        """Queue commands on keys of one hash slot; ``then`` is called when the store has them."""
        group = self._group(slot)
        for command in commands:
            group.commands.append(command)
            self._count(group, sum(len(part) for part in command if isinstance(part, str | bytes)))
        if then is not None:
            group.actions.append(then)
        if is_urgent:
            self._hurry(group)

    def append(self, response_id: str, entry: Entry) -> None:
        """Queue an event. When the buffer is full it is dropped, and the response cannot be resumed past it."""
        if self.is_full:
            return
        group = self._group(tag_of(response_id))
        group.events.setdefault(response_id, []).append(entry)
        self._count(group, len(entry.data))
        if entry.is_terminal:
            self._hurry(group)

    def forget(self, slot: str) -> None:
        """Drop what has not been sent of a session that is deleted."""
        if group := self._waiting.pop(slot, None):
            self._num_buffered_bytes -= group.num_bytes
            group.written.set()

    def lose(self, response_ids: Iterable[str]) -> None:
        """Write nothing more of these, nor of their sessions: another process does."""
        for slot in map(tag_of, response_ids):
            self._in_flight.pop(slot, None)
            self.forget(slot)

    async def flushed(self, slot: str, timeout_s: float) -> bool:
        """Wait until everything queued so far for a hash slot is written; False if it is not within the time."""
        group = self._waiting.get(slot) or self._in_flight.get(slot)
        return group is None or await self._written(group, timeout_s)

    async def _written(self, group: _Group, timeout_s: float) -> bool:
        self._hurry(group)
        with suppress(TimeoutError):
            await asyncio.wait_for(group.written.wait(), timeout_s)
        return group.written.is_set()

    def _group(self, slot: str) -> _Group:
        self._news.set()
        group = self._waiting.get(slot)
        if group is None:
            group = self._waiting[slot] = _Group()
        return group

    def _count(self, group: _Group, num_bytes: int) -> None:
        group.num_bytes += num_bytes
        self._num_buffered_bytes += num_bytes

    def _hurry(self, group: _Group) -> None:
        group.is_urgent = True
        self._urgent.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._news.wait()
            self._news.clear()
            all_due_at = loop.time() + FLUSH_INTERVAL_S
            while self._waiting:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(all_due_at):
                        await self._urgent.wait()
                self._urgent.clear()
                are_all_due = loop.time() >= all_due_at
                if due := [slot for slot, group in self._waiting.items() if are_all_due or group.is_urgent]:
                    await self._deliver(due)
                if are_all_due:
                    break  # what came meanwhile is gathered anew

    async def _deliver(self, slots: Iterable[str]) -> None:
        self._in_flight = {slot: self._waiting.pop(slot) for slot in slots}
        groups = list(self._in_flight.values())
        self._num_buffered_bytes -= sum(group.num_bytes for group in groups)
        while True:
            if await self._send(self._in_flight):
                break
            await asyncio.sleep(RETRY_INTERVAL_S)
        self._in_flight = {}
        for group in groups:
            for action in group.actions:
                action()
            group.written.set()

    async def _send(self, batch: _Batch) -> bool:
        try:
            await self._leases.check()
            for slots in self._transactions(batch):
                await self._transact(batch, slots)
        except (RedisError, OSError) as error:
            if not self.is_failing:
                log.error("the store does not take writes, trying on: %s", error)
            self.is_failing = True
            return False
        if self.is_failing:
            log.warning("the store takes writes again")
        self.is_failing = False
        return True

    def _transactions(self, batch: _Batch) -> list[list[str]]:
        """One transaction for all, except on a cluster, where each slot needs its own."""
        slots = list(batch)
        return [[slot] for slot in slots] if isinstance(self._client, RedisCluster) else [slots]

    async def _transact(self, batch: _Batch, slots: list[str]) -> None:
        pipe = self._client.pipeline(transaction=True)
        commands = _last_lives([command for slot in slots if slot in batch for command in self._commands(batch[slot])])
        for command in commands:
            pipe.execute_command(*command)
        results = await pipe.execute(raise_on_error=False)
        self._check(results)
        for command, result in zip(commands, results, strict=True):
            if command[0] == "SMEMBERS" and result:
                self._on_cancels([response_id.decode(errors="replace") for response_id in result])

    def _commands(self, group: _Group) -> list[Command]:
        commands = list(group.commands)
        for response_id, entries in group.events.items():
            key = keys.events(tag_of(response_id), response_id)
            joined = b"\n".join(entry.data for entry in entries)
            token_ids = ",".join(str(token_id) for entry in entries for token_id in entry.token_ids)
            commands.append(("XADD", key, f"{entries[-1].sequence_number}-1", "events", joined, "token_ids", token_ids))
            if (
                entries[0].sequence_number == 0 or entries[-1].is_terminal
            ):  # between them it is renewed from time to time
                commands.append(("EXPIRE", key, self._events_ttl_s))
        return commands

    @staticmethod
    def _check(results: list[Any]) -> None:
        """Pass on what another try may heal. A repeated batch is refused its events, which are there already."""
        for result in results:
            if not isinstance(result, Exception) or "equal or smaller" in str(result):
                continue
            if not str(result).startswith("WRONGTYPE"):
                raise result
            log.error("a key of the store was damaged by somebody else, its write is lost: %s", result)


def _last_lives(commands: list[Command]) -> list[Command]:
    """Without the lifetimes of keys that are set anew later in the same transaction."""
    last = {command[1]: position for position, command in enumerate(commands) if command[0] == "EXPIRE"}
    return [
        command for position, command in enumerate(commands) if command[0] != "EXPIRE" or last[command[1]] == position
    ]
