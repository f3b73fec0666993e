"""Who runs which response: each server process shows that it lives, and what a dead one ran may be claimed.

A process that could not show itself in time may have lost its responses to others. It asks before it writes again, so
that no log has two writers.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
from redis.exceptions import RedisError

from chatsrv.records import Heartbeat
from chatsrv.store import keys
from chatsrv.store.reachable import Reachable
from chatsrv.tasks import end

log = logging.getLogger("chatsrv.store")

BEAT_INTERVAL_S = 2.0
SURE_S = keys.PROCESS_TTL_S - BEAT_INTERVAL_S
"""So long after a renewal the lease is sure to hold, also while what is about to be sent is on its way."""

# KEYS[1] is the running hash, ARGV a response, who ran it, and who claims it: 1 for the first who does.
_CLAIM = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""


# KEYS[1] is the running hash, ARGV a response, who ran it, and who runs it now: "" anybody may, "-" it has ended.
# What others have claimed meanwhile stays theirs.
_LEAVE = """
if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
if ARGV[3] == '-' then return redis.call('HDEL', KEYS[1], ARGV[1]) end
return redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
"""


class Orphan(NamedTuple):
    """A response that nobody runs. ``process_id`` ran it until it died; empty: until it handed the response over."""

    response_id: str
    process_id: str


class Leases:
    """This process's lease, and the responses that depend on it.

    Attributes:
        process_id: of this server process, alive for others while its lease is.
        on_lost: called with the ids of responses that were claimed by others, before anything more is written.
        describe: what each heartbeat tells of the engine.
    """

    def __init__(self, client: Any, reachable: Reachable) -> None:
        self._client = client
        self._reachable = reachable
        self._renewed_at = 0.0
        self._own: set[str] = set()
        self._checking = asyncio.Lock()
        self._beating: asyncio.Task[None] | None = None
        self.process_id = secrets.token_urlsafe(9)
        self.on_lost: Callable[[Iterable[str]], None] = lambda response_ids: None
        self.describe: Callable[[], Heartbeat] = Heartbeat

    async def start(self) -> None:
        await self._renew()
        self._beating = asyncio.create_task(self._beat(), name="store heartbeat")

    async def close(self) -> None:
        if self._beating is None:
            return
        await end([self._beating])
        with suppress(RedisError, OSError):  # it expires by itself
            await self._client.delete(keys.process(self.process_id))

    @property
    def is_running(self) -> bool:
        """Whether the heart beats; its task ends only with this, or by a fault of ours."""
        return self._beating is not None and not self._beating.done()

    # -- own responses ------------------------------------------------------------------------------------------------

    def begin(self, response_id: str) -> tuple[Any, ...]:
        """The command by which this process begins to run a response."""
        self._own.add(response_id)
        return ("HSET", keys.RUNNING, response_id, self.process_id)

    def end(self, response_id: str) -> tuple[Any, ...]:
        """The command after which nobody needs to run the response; ``left`` tells that it was written."""
        return ("EVAL", _LEAVE, 1, keys.RUNNING, response_id, self.process_id, "-")

    def hand_over(self, response_id: str) -> tuple[Any, ...]:
        """The command after which anybody may claim the response; ``left`` tells that it was written."""
        return ("EVAL", _LEAVE, 1, keys.RUNNING, response_id, self.process_id, "")

    def left(self, response_id: str) -> None:
        self._own.discard(response_id)

    async def check(self) -> None:
        """Before writing: renew a lease that may have run out, and lose what others have claimed meanwhile."""
        async with self._checking:
            if time.monotonic() - self._renewed_at >= SURE_S:
                await self._renew()

    async def _renew(self) -> None:
        now = time.monotonic()
        beat = msgspec.json.encode(self.describe())
        key = keys.process(self.process_id)
        if await self._client.set(key, beat, ex=keys.PROCESS_TTL_S, get=True) is None:
            self._renewed_at = 0.0  # it had ended by the store's clock, which may have been set forward
        if now - self._renewed_at >= SURE_S:
            await self._lose_claimed()
        self._renewed_at = now

    async def _lose_claimed(self) -> None:
        own = list(self._own)
        owners = await self._client.hmget(keys.RUNNING, own) if own else []
        ours = (None, self.process_id.encode())
        lost = [one for one, owner in zip(own, owners, strict=True) if owner not in ours]
        if lost:
            log.warning("%d responses were taken over by others while the lease of this server had run out", len(lost))
            self._own.difference_update(lost)
            self.on_lost(lost)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_INTERVAL_S)
            try:
                async with self._checking:
                    await self._renew()
            except (RedisError, OSError) as error:
                log.debug("no heartbeat: %s", error)

    async def beat(self) -> None:
        """Tell the others at once how this process does."""
        with self._reachable():
            async with self._checking:
                await self._renew()

    # -- those of others ----------------------------------------------------------------------------------------------

    async def heartbeat(self, process_id: str) -> Heartbeat | None:
        """The last one; None: the process is dead. Of one that cannot be read only that the process lives."""
        with self._reachable():
            beat = await self._client.get(keys.process(process_id))
        try:
            return None if beat is None else msgspec.json.decode(beat, type=Heartbeat)
        except msgspec.DecodeError:
            return Heartbeat()

    async def orphans(self) -> list[Orphan]:
        """Responses whose process is dead or has handed them over, or is this one, which does not know of them.

        The latter are claims whose answer was lost, and what could not be taken up just after it was claimed.
        """
        with self._reachable():
            running = await self._client.hgetall(keys.RUNNING)
        found = [Orphan(response_id.decode(), process_id.decode()) for response_id, process_id in running.items()]
        others = {orphan.process_id for orphan in found} - {self.process_id, ""}
        alive = {process_id for process_id in others if await self.heartbeat(process_id) is not None}
        return [orphan for orphan in found if orphan.process_id not in alive and orphan.response_id not in self._own]

    async def claim(self, orphan: Orphan) -> bool:
        """Make the response this process's own; False if somebody else has been faster."""
        with self._reachable():
            claimed = await self._client.eval(_CLAIM, 1, keys.RUNNING, *orphan, self.process_id)
        if claimed:
            self._own.add(orphan.response_id)
        return bool(claimed)

    async def enlist(self, response_id: str, process_id: str) -> None:
        """List a response that nobody runs and that is not listed, for whoever looks for orphans next."""
        with self._reachable():
            await self._client.hsetnx(keys.RUNNING, response_id, process_id)
