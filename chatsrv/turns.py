"""Where a request continues: finding the place in the tree, rendering the prompt, queueing it in the engine."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from weakref import WeakValueDictionary

import msgspec

from chatsrv.account import Accounts
from chatsrv.errors import InvalidField, NotFound
from chatsrv.ids import new_id, new_tag, tag_of
from chatsrv.keyring import Caller
from chatsrv.placement import Placement
from chatsrv.prompt import Prompt, PromptBuilder
from chatsrv.records import ItemRecord, ResponseRecord, Session, chain, next_ns
from chatsrv.sampling import RESPONSE_NAMES, naming, response_params
from chatsrv.seam import OutputStream
from chatsrv.turn import Turn
from chatsrv.wire.create import TIERS, CreateResponse
from chatsrv.wire.items import Extras
from chatsrv.wire.response import ConversationRef, Response
from engine import SamplingParams

Recent = dict[str, Turn]
"""Unstored turns of one socket by response id."""


@dataclass(slots=True)
class Base:
    """Where a turn goes on: a session, and the path of items that the turn follows.

    Attributes:
        newest_ns: when the newest item that the session has was created.
    """

    tag: str
    session: Session
    path: list[ItemRecord]
    newest_ns: int = 0
    is_stored: bool = True

    @property
    def parent(self) -> ItemRecord | None:
        return self.path[-1] if self.path else None


class TurnPlanner:
    """Makes turns out of requests.

    Args:
        end_of: waits until a response has ended, wherever it runs.
    """

    def __init__(
        self,
        placement: Placement,
        accounts: Accounts,
        end_of: Callable[[Caller, str], Awaitable[None]],
    ) -> None:
        self._placement = placement
        self._engine = placement.engine
        self._store = placement.store
        self._accounts = accounts
        self._end_of = end_of
        self._prompts = PromptBuilder(placement.engine)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def submit(self, caller: Caller, request: CreateResponse, recent: Recent) -> tuple[Turn, OutputStream]:
        """Plan the turn and queue it. What it continues has ended by then, so that its history is what was told.

        Turns of one session are planned one after the other: of two that continue the newest turn, the second
        continues the first.
        """
        request.check()
        check_model(request.model, self._engine.model.name)
        if request.seed is None:  # ours then, so that another server would draw the same tokens
            request = msgspec.structs.replace(request, seed=secrets.randbits(63))
        params = response_params(request, self._engine.model)
        tag = self._tag(request)
        lock = self.lock(tag)
        awaited: str | None = None
        while True:
            async with lock:
                base = await self._base(caller, request, recent, tag)
                unfinished = _unfinished(base)
                if unfinished is None or unfinished == awaited:
                    return await self._begin(caller, request, params, base)
            awaited = unfinished
            await self._end_of(caller, awaited)

    def lock(self, tag: str) -> asyncio.Lock:
        """Held while a turn of the session is planned."""
        return self._locks.setdefault(tag, asyncio.Lock())

    # -- the place ----------------------------------------------------------------------------------------------------

    @staticmethod
    def _tag(request: CreateResponse) -> str:
        anchor = request.conversation_id or request.previous_response_id
        return tag_of(anchor) if anchor else new_tag()

    async def _base(self, caller: Caller, request: CreateResponse, recent: Recent, tag: str) -> Base:
        if request.conversation_id is not None:
            return await self._in_conversation(caller, request, tag)
        if request.previous_response_id is None:
            return Base(tag, Session(owner=caller.owner, created_at=int(time.time())), [])
        if previous := recent.get(request.previous_response_id):
            path = [*previous.path, *previous.items]
            return Base(tag, previous.session, path, path[-1].created_ns, is_stored=False)
        session, record = await self._previous(caller, request.previous_response_id)
        return await self._at(tag, session, *record.last_item_ids)

    async def _in_conversation(self, caller: Caller, request: CreateResponse, tag: str) -> Base:
        session = await self._store.conversation(caller.owner, request.conversation_id or "", "conversation")
        if request.previous_response_id is not None:
            if tag_of(request.previous_response_id) != tag:
                raise InvalidField("previous_response_id", "previous_response_id: is not of this conversation")
            _, record = await self._previous(caller, request.previous_response_id)
            return await self._at(tag, session, *record.last_item_ids)
        if request.parent_id == "root":
            return await self._at(tag, session)
        if request.parent_id is None:
            return await self._at(tag, session, session.head_id)
        base = await self._at(tag, session, request.parent_id)
        if not base.path:
            raise NotFound("no such item in this conversation", param="parent_id", code="item_not_found")
        return base

    async def _previous(self, caller: Caller, response_id: str) -> tuple[Session, ResponseRecord]:
        try:
            return await self._store.session_and_response(caller.owner, response_id)
        except NotFound:
            raise _no_previous() from None

    async def _at(self, tag: str, session: Session, *item_ids: str) -> Base:
        """At the first of these items that is there."""
        tree = await self._store.tree(tag)
        item_id = next((item_id for item_id in item_ids if item_id in tree), None)
        return Base(tag, session, tree.path(item_id), tree.newest_ns)

    async def _begin(
        self, caller: Caller, request: CreateResponse, params: SamplingParams, base: Base
    ) -> tuple[Turn, OutputStream]:
        with self._accounts.of(caller).place() as place:
            turn, prompt = await self._plan(caller, request, base)
            observation = turn.observe()
            tier = TIERS[request.service_tier]
            with naming(RESPONSE_NAMES):
                placed = await self._placement.submit(
                    prompt.token_ids, params, priority=tier, salt=caller.salt, prefix_key=_prefix_key(base)
                )
            turn.prefix = placed.prefix
            stream = place.keep(placed, len(prompt.token_ids), observation)
        if turn.is_stored:
            unstored = [] if base.is_stored else base.path
            self._store.begin_turn(base.tag, turn.session, [*unstored, *turn.items], turn.record)
        return turn, stream

    # -- the turn -----------------------------------------------------------------------------------------------------

    async def _plan(self, caller: Caller, request: CreateResponse, base: Base) -> tuple[Turn, Prompt]:
        response_id = new_id("resp", base.tag)
        parent_id = base.parent.id if base.parent else None
        asked = chain(base.tag, request.messages, parent_id, base.newest_ns, response_id)
        conversation = [*base.path, *asked]
        if not conversation or conversation[-1].role == "assistant":
            raise InvalidField("input", "input: required, for there is nothing to answer")
        prompt = await self._prompts.build(
            request.instructions,
            conversation,
            max_tokens=request.max_output_tokens,
            truncate=request.truncation == "auto",
        )
        answer = [] if request.generate is False else [self._answer(base, conversation[-1], response_id)]
        session = base.session
        session.last_used_at = time.time()
        session.head_id = (answer or conversation)[-1].id
        record = ResponseRecord(
            response=self._response(request, response_id, prompt, session),
            parent_item_id=parent_id,
            input_item_ids=[item.id for item in asked],
            output_item_id=answer[0].id if answer else None,
            request=request.without_content(),
            key_id=caller.key_id,
            process_id=self._store.leases.process_id,
            model_fingerprint=self._engine.model.fingerprint,
            prompt_token_ids=prompt.token_ids,
        )
        turn = Turn(
            caller=caller,
            tag=base.tag,
            request=request,
            session=session,
            record=record,
            path=base.path,
            items=[*asked, *answer],
        )
        return turn, prompt

    def _answer(self, base: Base, asked: ItemRecord, response_id: str) -> ItemRecord:
        return ItemRecord(
            id=new_id("msg", base.tag),
            role="assistant",
            text="",
            status="in_progress",
            parent_id=asked.id,
            response_id=response_id,
            created_ns=next_ns(max(base.newest_ns, asked.created_ns)),
        )

    def _response(self, request: CreateResponse, response_id: str, prompt: Prompt, session: Session) -> Response:
        response = Response(
            id=response_id,
            created_at=time.time(),
            model=self._engine.model.name,
            status="queued",
            background=bool(request.background),
            conversation=ConversationRef(id=session.conversation_id) if session.conversation_id else None,
            instructions=request.instructions,
            max_output_tokens=request.max_output_tokens,
            metadata=request.metadata or {},
            previous_response_id=request.previous_response_id,
            service_tier=TIERS[request.service_tier],
            store=request.stored,
            temperature=1.0 if request.temperature is None else request.temperature,
            top_logprobs=request.top_logprobs,
            top_p=1.0 if request.top_p is None else request.top_p,
            truncation=request.truncation or "disabled",
        )
        if prompt.num_dropped_items:
            response.chatsrv = Extras(num_dropped_items=prompt.num_dropped_items)
        return response


def check_model(name: str | None, served: str) -> None:
    """There is one model; a request may name it, but no other."""
    if name is not None and name != served:
        raise NotFound(
            f"model: {name[:100]!r} is not served here, only {served!r}", param="model", code="model_not_found"
        )


def _prefix_key(base: Base) -> str | None:
    """Of the turn that this one follows."""
    return base.parent.prefix_key if base.parent is not None else None


def _unfinished(base: Base) -> str | None:
    """The response whose answer this would continue, if it is still being written."""
    parent = base.parent
    return parent.response_id if parent is not None and parent.status == "in_progress" else None


def _no_previous() -> NotFound:
    return NotFound("no such response", param="previous_response_id", code="previous_response_not_found")
