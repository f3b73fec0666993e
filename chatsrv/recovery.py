"""Answers whose server is gone: they are continued under the same id, or end with a reason if they cannot be.

Anybody may find an orphan; the one who claims it reads what was stored of it, and starts a generation that goes on
there. Nothing of the engine's state is needed: tokens are drawn by seed and position (``engine.randomness``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from chatsrv.account import Accounts
from chatsrv.errors import ApiError, Unavailable
from chatsrv.failures import answer_to
from chatsrv.generation import Generation
from chatsrv.ids import tag_of
from chatsrv.keyring import Caller
from chatsrv.placement import Placement
from chatsrv.records import ResponseRecord, Session
from chatsrv.sampling import response_params
from chatsrv.store import Orphan
from chatsrv.turn import Turn
from chatsrv.wire import events
from chatsrv.wire.events import Told
from chatsrv.wire.response import TERMINAL, ResponseError
from engine import EngineStopped, QueueFull

log = logging.getLogger("chatsrv")

MAX_TAKEOVERS = 3
"""After so many deaths of the server that ran it, an answer is suspected to be their cause."""


_PASSING = (QueueFull, EngineStopped, Unavailable)
"""What says nothing of the answer, but of this server at this moment."""


class CannotContinue(ApiError):
    """Why an answer ends here. The message is for the client."""


class Recovery:
    """Looks for orphans and takes them over.

    Args:
        start: runs a generation in this process.
    """

    def __init__(self, placement: Placement, accounts: Accounts, start: Callable[[Generation], None]) -> None:
        self._placement = placement
        self._accounts = accounts
        self._engine = placement.engine
        self._store = placement.store
        self._start = start

    async def look(self) -> None:
        """Take over what nobody runs; what is too much for now is left to others, or to the next look."""
        if not self._engine.health().alive:
            return
        try:
            for orphan in await self._store.leases.orphans():
                if await self._store.leases.claim(orphan):
                    await self._take_over(orphan)
        except (QueueFull, EngineStopped):
            log.info("answers of servers that are gone wait for a place in the queue")
        except Unavailable:
            log.debug("the store cannot be reached to look for answers of servers that are gone")

    async def checked(self, record: ResponseRecord) -> ResponseRecord:
        """The record; where it says that the response runs but nobody does that, it is found by the next look."""
        if record.response.status not in TERMINAL and await self._store.leases.heartbeat(record.process_id) is None:
            await self._store.leases.enlist(record.response.id, record.process_id)
        return record

    async def _take_over(self, orphan: Orphan) -> None:
        """Go on with a claimed response, or end it. What hinders that only now is left to whoever comes next."""
        response_id = orphan.response_id
        try:
            found = await self._store.unchecked(response_id)
            if found is None or found[1].response.status in TERMINAL:
                self._store.drop_turn(response_id)
                return
            session, record = found
            record.num_takeovers += orphan.process_id not in ("", self._store.leases.process_id)
            await self._go_on(session, record, await self._store.told(response_id))
        except _PASSING:
            self._store.hand_over(response_id)
            raise
        except Exception:
            log.exception("what is stored of %s makes no sense, nobody can go on with it", response_id)
            self._store.drop_turn(response_id)

    async def _go_on(self, session: Session, record: ResponseRecord, told: Told) -> None:
        try:
            generation = await self._continue(session, record, told)
        except _PASSING:
            raise
        except Exception as error:
            await self._fail(record, told, answer_to(error).message)
            return
        log.info("going on with %s after %d events", record.response.id, len(told.entries))
        self._store.continue_turn(tag_of(record.response.id), record)
        self._start(generation)

    async def _continue(self, session: Session, record: ResponseRecord, told: Told) -> Generation:
        """
        Raises:
            CannotContinue, engine.InvalidRequest: it must end.
            QueueFull, EngineStopped, Unavailable: another time.
        """
        if record.num_takeovers > MAX_TAKEOVERS:
            raise CannotContinue(f"the server died {record.num_takeovers} times while it answered this")
        if record.model_fingerprint != self._engine.model.fingerprint:
            raise CannotContinue("the server was restarted with another model while it answered this")
        tree = await self._store.tree(tag_of(record.response.id))
        item_ids = [*record.input_item_ids, *filter(None, [record.output_item_id])]
        if not all(item_id in tree for item_id in item_ids):
            raise CannotContinue("items of this response were deleted or lost while no server ran it")
        caller = Caller(session.owner)
        placed = await self._placement.submit(
            record.prompt_token_ids,
            response_params(record.request, self._engine.model),
            priority=record.response.service_tier,
            salt=caller.salt,
            told_token_ids=told.token_ids,
        )
        turn = Turn(
            caller=caller,
            tag=tag_of(record.response.id),
            request=record.request,
            session=session,
            record=record,
            path=[],
            items=[tree[item_id] for item_id in item_ids],
            prefix=placed.prefix,
        )
        stream = self._accounts.of_key(record.key_id).continued().keep(placed, 0, turn.observe())
        return Generation(turn, stream, self._engine, self._store, told)

    async def _fail(self, record: ResponseRecord, told: Told, reason: str) -> None:
        """Write the last words of a response that goes no further; what was told of the answer is kept."""
        response = record.response
        response.status = "failed"
        response.error = ResponseError(code="server_error", message=reason)
        tree = await self._store.tree(tag_of(response.id))
        items = []
        if record.output_item_id is not None and record.output_item_id in tree:
            answer = tree[record.output_item_id]
            answer.text, answer.status = told.text, "incomplete"
            response.output = [answer.as_output([])]
            items = [answer]
        last = events.entry(events.terminal(response), len(told.entries))
        self._store.finish_turn(tag_of(response.id), items, record, last)
