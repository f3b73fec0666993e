"""All responses: those that run here, those of the past, and those that another process runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Coroutine, Iterable, Sequence
from contextlib import suppress

import msgspec

from chatsrv.account import Accounts
from chatsrv.drain import Drain
from chatsrv.errors import InvalidField, NotFound, NotResumable, Restarting, Unavailable
from chatsrv.generation import Generation
from chatsrv.ids import tag_of
from chatsrv.keyring import Caller
from chatsrv.placement import Placement
from chatsrv.records import ItemRecord, ResponseRecord
from chatsrv.recovery import Recovery
from chatsrv.seam import EngineSeam
from chatsrv.store import Store
from chatsrv.tasks import end
from chatsrv.turn import Turn
from chatsrv.turns import Recent, TurnPlanner
from chatsrv.wire.create import CreateResponse
from chatsrv.wire.events import Entry
from chatsrv.wire.response import TERMINAL, Response

log = logging.getLogger("chatsrv")

TEND_INTERVAL_S = 1.0

Batches = AsyncGenerator[list[Entry], None]
"""Events of a response as they come, as many at once as there were when the reader came back."""


class Responses:
    """Owns the running generations, and finds the others in the store.

    Args:
        disconnect_grace_s: how long a stored response goes on when nobody follows it.

    Attributes:
        drain: while the server goes, nothing new begins here.
    """

    def __init__(self, engine: EngineSeam, store: Store, accounts: Accounts, *, disconnect_grace_s: float) -> None:
        self.drain = Drain()
        self._engine = engine
        self._store = store
        self._disconnect_grace_s = disconnect_grace_s
        self._running: dict[str, Generation] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._essential: list[asyncio.Task[None]] = []
        self._placement = Placement(engine, store)
        self._recovery = Recovery(self._placement, accounts, self._continue)
        self._planner = TurnPlanner(self._placement, accounts, self._end_of)
        store.on_cancels = self._cancel_asked
        store.on_lost = self._lost

    def start(self) -> None:
        self._essential = [
            self._spawn(self._tend(), "tend responses"),
            self._spawn(self._placement.host(), "compute for other servers"),
        ]

    @property
    def is_running(self) -> bool:
        """Whether somebody tends the responses, and other servers' work; that ends with this, or by a fault of ours."""
        return bool(self._essential) and not any(task.done() for task in self._essential)

    @property
    def num_running(self) -> int:
        return len(self._running)

    async def hand_over(self) -> None:
        """Stop what still runs: it goes on in another server, or in the next one. What is not stored fails."""
        self.drain.end()
        await self._placement.close()
        generations = list(self._running.values())
        for generation in generations:
            generation.leave()
        await asyncio.gather(*(generation.ended() for generation in generations))

    async def close(self) -> None:
        self.drain.begin()
        await self.hand_over()
        await end(self._tasks)

    # -- creating -----------------------------------------------------------------------------------------------------

    async def create(self, caller: Caller, request: CreateResponse, recent: Recent | None = None) -> Generation:
        """Check, queue in the engine, and start. Nothing is queued or stored if this raises.

        Args:
            recent: unstored turns of the caller's socket, which the request may continue.
        """
        self.drain.check()
        if request.stored:
            self._store.check_room()
        turn, stream = await self._planner.submit(caller, request, {} if recent is None else recent)
        generation = Generation(turn, stream, self._engine, self._store if turn.is_stored else None)
        self._begin(generation)
        return generation

    def _begin(self, generation: Generation) -> None:
        self._running[generation.id] = generation
        self._spawn(self._run(generation), f"response {generation.id}")

    def _continue(self, generation: Generation) -> None:
        """Run what began elsewhere; its followers have the grace time to come."""
        self._begin(generation)
        self._left_alone(generation)

    async def _run(self, generation: Generation) -> None:
        try:
            await generation.run()
        finally:
            self._running.pop(generation.id, None)
            response = generation.turn.response
            fields = {"response_id": response.id, "status": response.status, "owner": generation.turn.caller.owner}
            log.info("response %s: %s", response.id, response.status, extra={"fields": fields})

    # -- reading ------------------------------------------------------------------------------------------------------

    async def retrieve(self, caller: Caller, response_id: str) -> Response:
        """The response as it is now; of a running one with the text so far."""
        if generation := self.running(caller, response_id):
            return snapshot(generation.turn)
        record = await self._store.response(caller.owner, response_id)
        return (await self._recovery.checked(record)).response

    async def follow(self, caller: Caller, response_id: str, starting_after: int = -1) -> Batches:
        """Events after that number: those of the past, then live, up to the terminal one.

        Raises:
            NotFound: no such response.
            NotResumable: its events are gone.
            Restarting: the rest is told by another server.
        """
        generation = self.running(caller, response_id)
        if generation is None:
            record = await self._store.response(caller.owner, response_id)
            async for entries in self._follow_stored(caller, record, starting_after):
                yield entries
        else:
            async for entries in self.follow_running(generation, starting_after):
                yield entries

    async def follow_running(self, generation: Generation, starting_after: int = -1) -> Batches:
        """As ``follow``. When its last follower leaves, a response is cancelled after the grace time."""
        generation.num_followers += 1
        try:
            async for entries in generation.log.follow(starting_after):
                yield entries
        finally:
            generation.num_followers -= 1
            self._left_alone(generation)

    def _left_alone(self, generation: Generation) -> None:
        if generation.num_followers or generation.turn.request.background or generation.log.is_closed:
            return
        if not generation.is_stored:
            generation.stop()
            return
        generation.left_at = time.monotonic()
        self._spawn(self._give_grace(generation), f"grace {generation.id}")

    async def _give_grace(self, generation: Generation) -> None:
        """From when its last follower has left. Nor may anybody follow its log through another server."""
        left_at = generation.left_at
        while True:
            await asyncio.sleep(self._disconnect_grace_s)
            if generation.num_followers or generation.left_at != left_at or generation.log.is_closed:
                return
            with suppress(Unavailable):
                if not await self._store.is_followed(generation.id):
                    generation.stop()
                    return

    async def _follow_stored(self, caller: Caller, record: ResponseRecord, starting_after: int) -> Batches:
        response_id, position = record.response.id, starting_after
        while True:
            if self.drain.is_over:
                raise Restarting
            if generation := self.running(caller, response_id):  # it came here
                async for entries in self.follow_running(generation, position):
                    yield entries
                return
            is_running = record.response.status not in TERMINAL
            if is_running:
                await self._store.mark_followed(response_id)
            read = self._store.wait_for_events if is_running else self._store.events
            if entries := await read(response_id, position):
                yield entries
                position = entries[-1].sequence_number
                if entries[-1].is_terminal:
                    return
            elif is_running:
                record = await self._store.response(caller.owner, response_id)
                record = await self._recovery.checked(record)
            else:
                await self._check_is_the_end(record.response, position)
                return

    async def _check_is_the_end(self, response: Response, position: int) -> None:
        last = await self._store.last_event(response.id)
        if last is None or last.sequence_number > position:
            raise NotResumable(
                "the events of this response are no longer kept; its final state is in GET /v1/responses/{id}",
                response=response,
            )

    # -- ending -------------------------------------------------------------------------------------------------------

    async def cancel(self, caller: Caller, response_id: str) -> Response:
        """Cancel wherever it runs. One that has ended stays as it is."""
        if generation := self.running(caller, response_id):
            generation.stop()
            await generation.ended()
            return generation.turn.response
        record = await self._store.response(caller.owner, response_id)
        if record.response.status not in TERMINAL:
            await self._store.request_cancel(response_id)
            async for _ in self._follow_stored(caller, record, -1):
                pass
            record = await self._store.response(caller.owner, response_id)
        return record.response

    async def delete(self, caller: Caller, response_id: str) -> None:
        """Delete a response with its items; what followed them follows what they followed."""
        await self.cancel(caller, response_id)
        record = await self._store.response(caller.owner, response_id)
        async with self.planning(tag_of(response_id)):
            session = await self._store.session(caller.owner, tag_of(response_id), NotFound("no such response"))
            tree = await self._store.tree(tag_of(response_id))
            path = tree.path(session.head_id)
            item_ids = [*record.input_item_ids, *filter(None, [record.output_item_id])]
            gone = [item_id for item_id in item_ids if item_id in tree]
            moved = [item for item_id in gone for item in tree.remove(item_id)]
            kept = [item for item in moved if item.id in tree]
            check_none_grows(kept, "response_id")
            if session.head_id in gone:
                head_id = next((item.id for item in reversed(path) if item.id in tree), "")
                await self._store.put_head(tag_of(response_id), head_id)
            await self._store.put_items(tag_of(response_id), kept, deleted=gone)
            await self._store.delete_response(tag_of(response_id), response_id)

    def planning(self, tag: str) -> asyncio.Lock:
        """Held by whoever changes a session's tree, so that no turn is planned on what is about to change."""
        return self._planner.lock(tag)

    async def end_session(self, tag: str) -> None:
        """End all responses of a session that is being deleted, without a trace."""
        generations = [generation for generation in self._running.values() if generation.turn.tag == tag]
        for generation in generations:
            generation.discard()
        await asyncio.gather(*(generation.ended() for generation in generations))

    # -- inside -------------------------------------------------------------------------------------------------------

    def running(self, caller: Caller, response_id: str) -> Generation | None:
        """The generation, if it runs in this process and is the caller's."""
        generation = self._running.get(response_id)
        return generation if generation is not None and generation.turn.caller.owner == caller.owner else None

    async def _end_of(self, caller: Caller, response_id: str) -> None:
        """
        Raises:
            Restarting: it was left, and what follows it may not begin here any more.
        """
        if generation := self.running(caller, response_id):
            await generation.ended()
            if self.drain.is_over:
                raise Restarting
            if generation.log.is_closed:
                return  # else it goes on elsewhere
        with suppress(NotFound, NotResumable):
            async for _ in self.follow(caller, response_id):
                pass

    def _lost(self, response_ids: Iterable[str]) -> None:
        for response_id in response_ids:
            if generation := self._running.get(response_id):
                generation.lose()

    def _cancel_asked(self, response_ids: Iterable[str]) -> None:
        for response_id in response_ids:
            if generation := self._running.get(response_id):
                generation.stop()

    async def _tend(self) -> None:
        renewed_at = time.monotonic()
        while True:
            if not self.drain.is_begun:
                await self._recovery.look()
            await asyncio.sleep(min(TEND_INTERVAL_S, self._store.renew_interval_s))
            stored = [generation for generation in self._running.values() if generation.is_stored]
            for tag in {generation.turn.tag for generation in stored}:
                self._store.look_for_cancels(tag)
            if time.monotonic() - renewed_at >= self._store.renew_interval_s:
                renewed_at = time.monotonic()
                for generation in stored:
                    self._store.renew(generation.turn.tag, generation.id)

    def _spawn(self, coroutine: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def check_none_grows(moved: Sequence[ItemRecord], param: str) -> None:
    """Refuse to move answers that are being written: their last write would move them back.

    Raises:
        InvalidField: naming ``param``.
    """
    if any(item.status == "in_progress" for item in moved):
        raise InvalidField(param, f"{param}: what follows is being generated; cancel its response first")


def snapshot(turn: Turn) -> Response:
    """A copy of a running response with the text so far."""
    response = msgspec.structs.replace(turn.response)
    if turn.answer is not None and turn.answer.text:
        response.output = [turn.answer.as_output([])]
    return response
