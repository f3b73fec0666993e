"""Where a prompt is computed: here, or in another server's engine that holds its beginning in its prefix cache.

The response stays here, with its log, its followers and its end; only the engine's part travels, through the store. If
the other server is busy, refuses or dies, this one goes on after the tokens that came.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress

import msgspec
from msgspec import Struct

from chatsrv.errors import Unavailable
from chatsrv.records import Heartbeat, PrefixPlace
from chatsrv.seam import EngineSeam, OutputStream
from chatsrv.store import Store
from chatsrv.store.keys import PREFIX_TTL_S
from engine import EngineError, EngineStopped, Output, Priority, SamplingParams

log = logging.getLogger("chatsrv")

MIN_GAIN_TOKENS = 256
"""A hop is worth it from so many tokens on that need not be computed here."""

SENDER_LOOK_S = 5.0
LOST_AFTER_S = 6.0
"""Work that its host has neither sent results of nor named in a heartbeat for so long is not being done."""


class Work(Struct, kw_only=True, tag=True):
    """A submission to another server's engine."""

    id: str
    sender: str
    prompt_token_ids: list[int]
    params: SamplingParams
    priority: Priority
    salt: bytes
    told_token_ids: list[int]


class Stop(Struct, tag=True):
    """The work's outputs are not wanted any more."""

    id: str


class News(Struct, tag=True):
    output: Output


class End(Struct, tag=True):
    """There are no more outputs; the turn's prefix lies there."""

    prefix: PrefixPlace | None


class Refused(Struct, tag=True):
    """The sender has to go on by itself."""


_encode = msgspec.json.Encoder().encode
_decode_message = msgspec.json.Decoder(Work | Stop).decode
_decode_result = msgspec.json.Decoder(News | End | Refused).decode


class Placement:
    """Chooses where prompts are computed, and computes what others send here."""

    def __init__(self, engine: EngineSeam, store: Store) -> None:
        self.engine = engine
        self.store = store
        self._hosted: dict[str, asyncio.Task[None]] = {}
        self._is_closed = False
        store.leases.describe = self._heartbeat

    async def submit(
        self,
        prompt_token_ids: Sequence[int],
        params: SamplingParams,
        *,
        priority: Priority,
        salt: bytes,
        told_token_ids: Sequence[int] = (),
        prefix_key: str | None = None,
    ) -> PlacedStream:
        """As the engine's ``submit``.

        Args:
            prefix_key: of the turn that this one follows.
        """
        self.engine.check(prompt_token_ids, params)
        work = Work(
            id=secrets.token_urlsafe(12),
            sender=self.store.leases.process_id,
            prompt_token_ids=list(prompt_token_ids),
            params=params,
            priority=priority,
            salt=salt,
            told_token_ids=list(told_token_ids),
        )
        with suppress(Unavailable, msgspec.DecodeError):
            if prefix_key is not None and (host := await self._host(work, prefix_key)) is not None:
                await self.store.inboxes.send(host, _encode(work))
                return PlacedStream(self, work, host)
        stream = PlacedStream(self, work, None)
        await stream.go_on_here()
        return stream

    def locate(self, token_ids: Sequence[int], salt: bytes) -> PrefixPlace | None:
        """Where the beginning of a finished turn lies in this server's engine."""
        found = self.engine.locate_prefix(token_ids, salt)
        if found.key is None:
            return None
        return PrefixPlace(
            key=found.key,
            process_id=self.store.leases.process_id,
            tier="cpu" if found.num_cpu_tokens else "device",
            num_tokens=found.num_device_tokens + found.num_cpu_tokens,
            until=time.time() + PREFIX_TTL_S,
        )

    def _heartbeat(self) -> Heartbeat:
        occupancy = self.engine.stats().occupancy
        return Heartbeat(
            fingerprint=self.engine.model.fingerprint,
            hosted=list(self._hosted),
            num_running=sum(occupancy.num_running.values()),
            num_waiting=sum(occupancy.num_waiting.values()),
            num_free_blocks=occupancy.blocks.free + occupancy.blocks.cached,
        )

    async def _host(self, work: Work, prefix_key: str) -> str | None:
        """The other server that spares the most of those that are not overloaded; None: this one."""
        here = self.engine.locate_prefix(work.prompt_token_ids, work.salt)
        needed = here.num_device_tokens + here.num_cpu_tokens + MIN_GAIN_TOKENS
        places = await self.store.prefix_places(prefix_key)
        for place in sorted(places, key=lambda place: place.num_tokens, reverse=True):
            if place.num_tokens < needed:
                break
            is_other = place.process_id != self.store.leases.process_id
            if is_other and self._is_fit(await self.store.leases.heartbeat(place.process_id)):
                return place.process_id
        return None

    def _is_fit(self, beat: Heartbeat | None) -> bool:
        """Whether the server lives, serves the same model, and lets nobody wait."""
        return beat is not None and beat.num_waiting == 0 and beat.fingerprint == self.engine.model.fingerprint

    # -- for others ---------------------------------------------------------------------------------------------------

    async def host(self) -> None:
        """Compute what other servers send, for ever."""
        with suppress(Unavailable):
            await self.store.leases.beat()
        while True:
            try:
                for message in await self.store.inboxes.receive():
                    self._handle(message)
            except Unavailable:
                await asyncio.sleep(1.0)

    async def close(self) -> None:
        """Give what is hosted back to its senders, and what still comes too."""
        self._is_closed = True
        hosted = list(self._hosted.values())
        for task in hosted:
            task.cancel()
        await asyncio.gather(*hosted, return_exceptions=True)

    def _handle(self, data: bytes) -> None:
        try:
            message = _decode_message(data)
        except msgspec.DecodeError as error:
            log.warning("a message of another server is passed over: %s", error)
            return
        if isinstance(message, Work):
            task = asyncio.create_task(self._compute(message), name=f"work {message.id}")
            self._hosted[message.id] = task
            task.add_done_callback(lambda _: self._hosted.pop(message.id))
        elif message.id in self._hosted:
            self._hosted[message.id].cancel()

    async def _compute(self, work: Work) -> None:
        number = 0
        try:
            if self._is_closed:
                raise EngineStopped("this server goes")
            async with aclosing(self._results(work)) as results:
                async for result in results:
                    number += 1
                    await self.store.inboxes.put_result(work.id, number, _encode(result))
        except Unavailable:
            log.info("work for another server is given up: the store takes no results")
        except (EngineError, asyncio.CancelledError):
            await self.store.inboxes.put_result(work.id, number + 1, _encode(Refused()))

    async def _results(self, work: Work) -> AsyncGenerator[News | End, None]:
        stream = await self.engine.submit(
            work.prompt_token_ids,
            work.params,
            priority=work.priority,
            salt=work.salt,
            told_token_ids=work.told_token_ids,
        )
        token_ids = [*work.prompt_token_ids, *work.told_token_ids]
        looked_at = time.monotonic()
        try:
            async for output in stream:
                token_ids += output.token_ids
                yield News(output)
                if time.monotonic() - looked_at > SENDER_LOOK_S:
                    looked_at = time.monotonic()
                    if await self.store.leases.heartbeat(work.sender) is None:
                        return
            yield End(self.locate(token_ids, work.salt))
        finally:
            await stream.aclose()


class PlacedStream:
    """Outputs of one request, wherever it is computed; an ``OutputStream``.

    Args:
        host: the process that computes it; None: this one.
    """

    def __init__(self, placement: Placement, work: Work, host: str | None) -> None:
        self._placement = placement
        self._work = work
        self._host = host
        self._here: OutputStream | None = None
        self._token_ids = list(work.told_token_ids)
        self._num_results = 0
        self._arrived: deque[Output] = deque()
        self._end: End | None = None
        self._was_refused = False
        self._heard_at = time.monotonic()

    def __aiter__(self) -> PlacedStream:
        return self

    async def __anext__(self) -> Output:
        output = await self._next()
        self._token_ids += output.token_ids
        return output

    async def aclose(self) -> None:
        if self._here is not None:
            await self._here.aclose()
        elif self._end is None:
            await self._stop_host()

    def prefix(self) -> PrefixPlace | None:
        """Where prompt and answer are cached now."""
        if self._here is not None:
            return self._placement.locate([*self._work.prompt_token_ids, *self._token_ids], self._work.salt)
        return self._end.prefix if self._end is not None else None

    async def go_on_here(self) -> None:
        """Compute the rest in this process."""
        work = self._work
        self._here = await self._placement.engine.submit(
            work.prompt_token_ids,
            work.params,
            priority=work.priority,
            salt=work.salt,
            told_token_ids=self._token_ids,
        )
        self._iterator = aiter(self._here)

    async def _next(self) -> Output:
        while self._here is None:
            if self._arrived:
                return self._arrived.popleft()
            if self._end is not None:
                raise StopAsyncIteration
            is_going_on = await self._fetch()
            _check_cancelled()
            if not is_going_on:
                log.info("going on here with work that another server does not finish")
                await self._stop_host()
                await self.go_on_here()
        return await anext(self._iterator)

    async def _fetch(self) -> bool:
        """Wait for results; False if none will come."""
        assert self._host is not None
        store = self._placement.store
        if self._was_refused:
            return False
        try:
            results = list(map(_decode_result, await store.inboxes.results(self._work.id, self._num_results)))
            beat = None if results else await store.leases.heartbeat(self._host)
        except (Unavailable, msgspec.DecodeError):
            return False
        if results or (beat is not None and self._work.id in beat.hosted):
            self._heard_at = time.monotonic()
        elif beat is None or time.monotonic() - self._heard_at > LOST_AFTER_S:
            return False
        self._num_results += len(results)
        for result in results:
            match result:
                case News(output):
                    self._arrived.append(output)
                case End():
                    self._end = result
                case Refused():
                    self._was_refused = True
        return True

    async def _stop_host(self) -> None:
        if self._host is not None:
            with suppress(Unavailable):  # it looks by itself whether we live
                await self._placement.store.inboxes.send(self._host, _encode(Stop(self._work.id)))


def _check_cancelled() -> None:
    """Python 3.11's ``wait_for``, by which redis-py sends, loses a cancellation that comes as it ends."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
