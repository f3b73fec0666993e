"""Sessions, their items, responses and event logs. Every call names the owner; what is another's does not exist."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from redis.exceptions import RedisError

from chatsrv.errors import NotFound
from chatsrv.ids import has_form, tag_of
from chatsrv.item_tree import ItemTree, start_after
from chatsrv.records import ItemRecord, PrefixPlace, ResponseRecord, Session
from chatsrv.store import forms, keys
from chatsrv.store.connect import disconnect
from chatsrv.store.inboxes import Inboxes
from chatsrv.store.journal import Command, Journal
from chatsrv.store.leases import Leases
from chatsrv.store.reachable import Reachable, unreachable
from chatsrv.wire.events import Entry, Told, contiguous, parse_entry

log = logging.getLogger("chatsrv.store")

_encode = msgspec.json.Encoder().encode
_decode_item = msgspec.json.Decoder(ItemRecord).decode
_decode_place = msgspec.json.Decoder(PrefixPlace).decode
_decode_response = msgspec.json.Decoder(ResponseRecord).decode

_SCAN = 200  # conversations read at once while searching
_BLOCK_MS = 1000
_FLUSH_TIMEOUT_S = 1.0
_CLOCK_ERROR_S = 24 * 3600  # an index is cleared so late, that no clock set forward hides sessions that still live
_PING_TIMEOUT_S = 1.0  # whoever asks whether the store answers waits for less than for what the store is asked


class ConversationPage(NamedTuple):
    conversations: list[Session]
    has_more: bool


class Store:
    """The one door to Redis.

    Args:
        client: from ``connect``.
        session_ttl_s: how long a session lives after its last use.
        events_ttl_s: how long a response can be resumed after its last event.

    Attributes:
        on_cancels: called with the ids of responses that another process was asked to cancel.
        on_lost: called with the ids of responses that another process has taken over.
        leases: who runs which response.
        inboxes: work between servers.
        renew_interval_s: how often what is still being written needs ``renew``.
    """

    def __init__(self, client: Any, *, session_ttl_s: int, events_ttl_s: int) -> None:
        self._client = client
        self._session_ttl_s = session_ttl_s
        self._events_ttl_s = min(events_ttl_s, session_ttl_s)
        self.renew_interval_s = self._events_ttl_s / 3
        self.on_cancels: Callable[[Iterable[str]], None] = lambda response_ids: None
        self.on_lost: Callable[[Iterable[str]], None] = lambda response_ids: None
        self._reachable = Reachable()
        self.leases = Leases(client, self._reachable)
        self.leases.on_lost = self._lost
        self.inboxes = Inboxes(client, self._reachable, self.leases.process_id)
        self.journal = Journal(client, self._events_ttl_s, self.leases, lambda ids: self.on_cancels(ids))

    async def start(self) -> None:
        """Check that the store answers, and begin to write and to beat."""
        with self._reachable():
            await self._client.ping()
            await self.leases.start()
        self.journal.start()

    async def close(self) -> None:
        await self.journal.close()
        await self.leases.close()
        await disconnect(self._client)

    @property
    def is_running(self) -> bool:
        """Whether the tasks that write and beat are there; they end only with the store, or by a fault of ours."""
        return self.journal.is_running and self.leases.is_running

    async def is_reachable(self) -> bool:
        try:
            async with asyncio.timeout(_PING_TIMEOUT_S):
                await self._client.ping()
        except (RedisError, OSError, TimeoutError):
            return False
        return not self.journal.is_failing

    def check_room(self) -> None:
        """
        Raises:
            Unavailable: the store has been away for so long that nothing new can be kept for it.
        """
        if self.journal.is_full:
            raise unreachable()

    # -- reading ------------------------------------------------------------------------------------------------------

    async def session(self, owner: str, tag: str, missing: NotFound) -> Session:
        """The session's head.

        Raises:
            NotFound: ``missing``, if there is none or it is somebody else's.
        """
        session = forms.parse_session(await self._read(tag, self._client.hgetall, keys.session(tag)))
        if session is None or session.owner != owner:
            raise missing
        return session

    async def conversation(self, owner: str, conversation_id: str, param: str | None = None) -> Session:
        missing = NotFound("no such conversation", param=param, code="conversation_not_found")
        if not has_form(conversation_id, "conv"):
            raise missing
        session = await self.session(owner, tag_of(conversation_id), missing)
        if session.conversation_id != conversation_id:
            raise missing
        return session

    async def tree(self, tag: str) -> ItemTree:
        """All items of a session whose owner has been checked."""
        fields = await self._read(tag, self._client.hgetall, keys.items(tag))
        return ItemTree(_decode_item(value) for value in fields.values())

    async def response(self, owner: str, response_id: str) -> ResponseRecord:
        _, record = await self.session_and_response(owner, response_id)
        return record

    async def session_and_response(self, owner: str, response_id: str) -> tuple[Session, ResponseRecord]:
        found = await self.unchecked(response_id) if has_form(response_id, "resp") else None
        if found is None or found[0].owner != owner:
            raise NotFound("no such response", code="response_not_found")
        return found

    async def unchecked(self, response_id: str) -> tuple[Session, ResponseRecord] | None:
        """A response and its session, whoever owns them; None if they have expired or were deleted."""
        tag = tag_of(response_id)
        pipe = self._client.pipeline(transaction=False)
        pipe.hgetall(keys.session(tag))
        pipe.hget(keys.responses(tag), response_id)
        fields, value = await self._read(tag, pipe.execute)
        session = forms.parse_session(fields)
        return None if session is None or value is None else (session, _decode_response(value))

    async def conversations(
        self, owner: str, *, limit: int, after: str | None, newest_first: bool, query: str
    ) -> ConversationPage:
        """A page of the owner's conversations by last use; ``query`` is searched in titles, ignoring case.

        Raises:
            NotFound: there is none with the id ``after``.
        """
        ids = await self._read(_index_slot(owner), self._client.zrange, keys.index(owner), 0, -1, desc=newest_first)
        ids = [value.decode() for value in ids]
        start = start_after(after, ids, "conversation")
        found: list[Session] = []
        for position in range(start, len(ids), _SCAN):
            for session in await self._sessions(ids[position : position + _SCAN]):
                title = session.metadata.get("title", "")
                if session.owner == owner and query.casefold() in title.casefold():
                    found.append(session)
            if len(found) > limit:
                break
        return ConversationPage(found[:limit], len(found) > limit)

    async def events(self, response_id: str, starting_after: int) -> list[Entry]:
        """Stored events after that number. They are contiguous, or end before the first hole."""
        tag = tag_of(response_id)
        chunks = await self._read(
            tag, self._client.xrange, keys.events(tag, response_id), min=f"{starting_after + 1}-0"
        )
        return list(contiguous(forms.parse_events(chunks), starting_after))

    async def last_event(self, response_id: str) -> Entry | None:
        """The newest stored event."""
        tag = tag_of(response_id)
        chunks = await self._read(tag, self._client.xrevrange, keys.events(tag, response_id), count=1)
        return next(iter(list(forms.parse_events(chunks))[::-1]), None)

    async def wait_for_events(self, response_id: str, starting_after: int) -> list[Entry]:
        """As ``events``, but waits a second for some to come."""
        tag = tag_of(response_id)
        key = keys.events(tag, response_id)
        streams = await self._read(
            tag, self._client.xread, {key: f"{starting_after}-1" if starting_after >= 0 else "0-0"}, block=_BLOCK_MS
        )
        chunks = streams[0][1] if streams else []
        entries = list(contiguous(forms.parse_events(chunks), starting_after))
        if chunks and not entries:
            await asyncio.sleep(_BLOCK_MS / 1000)  # there is a hole, which nothing will fill
        return entries

    async def mark_followed(self, response_id: str) -> None:
        """Tell the process that runs the response that somebody follows it here."""
        key = keys.followed(tag_of(response_id), response_id)
        with self._reachable():
            await self._client.set(key, "1", ex=keys.FOLLOWED_TTL_S)

    async def is_followed(self, response_id: str) -> bool:
        """Whether somebody follows the response through another process."""
        with self._reachable():
            return bool(await self._client.exists(keys.followed(tag_of(response_id), response_id)))

    async def prefix_places(self, key: str) -> list[PrefixPlace]:
        """Which engines hold the beginning of the turn with this prefix-cache key, in which tier."""
        with self._reachable():
            values = await self._client.hvals(keys.prefix(key))
        places = [_decode_place(value) for value in values]
        return [place for place in places if place.until > time.time()]

    async def told(self, response_id: str) -> Told:
        """The stored beginning of a response, as far as nothing is missing, to go on after it."""
        told = Told([], [])
        tag = tag_of(response_id)
        for _, fields in await self._read(tag, self._client.xrange, keys.events(tag, response_id)):
            entries = [parse_entry(data) for data in fields[b"events"].split(b"\n")]
            expected = range(len(told.entries), len(told.entries) + len(entries))
            if [entry.sequence_number for entry in entries] != list(expected):
                break
            told.entries.extend(entries)
            told.token_ids.extend(map(int, filter(None, fields[b"token_ids"].split(b","))))
        return told

    # -- writing ------------------------------------------------------------------------------------------------------

    def begin_turn(self, tag: str, session: Session, items: Sequence[ItemRecord], record: ResponseRecord) -> None:
        """Queue a turn's first write: its session, what was asked, and the answer to come."""
        self._write_running(self.leases.begin(record.response.id))
        self.journal.write(
            tag,
            [
                *forms.put_session(tag, session),
                *forms.put_items(tag, items),
                ("HSET", keys.responses(tag), record.response.id, _encode(record)),
                *self._touch(tag),
            ],
        )
        if session.conversation_id:
            self.journal.write(_index_slot(session.owner), self._index(session))

    def finish_turn(self, tag: str, items: Sequence[ItemRecord], record: ResponseRecord, last: Entry) -> None:
        """Queue a turn's last write, together with its terminal event."""
        response_id = record.response.id
        commands = [
            *forms.put_items(tag, items),
            ("HSET", keys.responses(tag), response_id, _encode(record)),
            ("SREM", keys.cancels(tag), response_id),
            *self._touch(tag),
        ]
        self.journal.write(tag, commands)
        self.journal.append(response_id, last)
        self.drop_turn(response_id)

    def continue_turn(self, tag: str, record: ResponseRecord) -> None:
        """Queue who runs a claimed response from now on."""
        record.process_id = self.leases.process_id
        command = ("HSET", keys.responses(tag), record.response.id, _encode(record))
        self.journal.write(tag, [command, *self._touch(tag)])

    def hand_over(self, response_id: str) -> None:
        """Queue that whoever comes first may go on with a response."""
        self._write_running(self.leases.hand_over(response_id), lambda: self.leases.left(response_id))

    def drop_turn(self, response_id: str) -> None:
        """Queue that a response that is no more needs nobody to run it."""
        self._write_running(self.leases.end(response_id), lambda: self.leases.left(response_id))

    def put_prefix(self, place: PrefixPlace) -> None:
        """Queue where the beginning of a finished turn is cached."""
        key = keys.prefix(place.key)
        command = ("HSET", key, place.process_id, _encode(place))
        self.journal.write(f"prefix:{place.key}", [command, ("EXPIRE", key, keys.PREFIX_TTL_S)])

    def look_for_cancels(self, tag: str) -> None:
        """Queue a look whether somebody wants a response of the session cancelled; ``on_cancels`` is told."""
        self.journal.write(tag, [("SMEMBERS", keys.cancels(tag))], is_urgent=False)

    def renew(self, tag: str, response_id: str) -> None:
        """Queue a new lease of life for a session that generates, and for what it has written."""
        events = ("EXPIRE", keys.events(tag, response_id), self._events_ttl_s)
        self.journal.write(tag, [*self._touch(tag), events], is_urgent=False)

    async def put_conversation(self, tag: str, session: Session, items: Sequence[ItemRecord] = ()) -> None:
        await self._transact(tag, [*forms.put_session(tag, session), *forms.put_items(tag, items), *self._touch(tag)])
        await self._transact(_index_slot(session.owner), self._index(session))

    async def put_items(self, tag: str, items: Sequence[ItemRecord], deleted: Iterable[str] = ()) -> None:
        commands = [("HDEL", keys.items(tag), item_id) for item_id in deleted]
        await self._transact(tag, [*commands, *forms.put_items(tag, items), *self._touch(tag)])

    async def put_metadata(self, tag: str, metadata: dict[str, str]) -> None:
        await self._transact(tag, [("HSET", keys.session(tag), "metadata", _encode(metadata)), *self._touch(tag)])

    async def put_head(self, tag: str, item_id: str) -> None:
        await self._transact(tag, [("HSET", keys.session(tag), "head_id", item_id), *self._touch(tag)])

    async def delete_response(self, tag: str, response_id: str) -> None:
        await self._transact(
            tag, [("HDEL", keys.responses(tag), response_id), ("DEL", keys.events(tag, response_id)), *self._touch(tag)]
        )

    async def delete_session(self, tag: str, session: Session) -> None:
        self.journal.forget(tag)
        response_ids = await self._read(tag, self._client.hkeys, keys.responses(tag))
        events = [keys.events(tag, response_id.decode()) for response_id in response_ids]
        names = [keys.session(tag), keys.items(tag), keys.responses(tag), keys.cancels(tag), *events]
        await self._transact(tag, [("DEL", *names)])
        if session.conversation_id:
            await self._transact(
                _index_slot(session.owner), [("ZREM", keys.index(session.owner), session.conversation_id)]
            )

    async def request_cancel(self, response_id: str) -> None:
        """Ask whichever process runs the response to cancel it; it looks every second."""
        tag = tag_of(response_id)
        key = keys.cancels(tag)
        expire = ("EXPIRE", key, self._session_ttl_s)
        await self._transact(tag, [("SADD", key, response_id), expire, *self._touch(tag)])

    # -- inside -------------------------------------------------------------------------------------------------------

    def _lost(self, response_ids: Iterable[str]) -> None:
        self.journal.lose(response_ids)
        self.on_lost(response_ids)

    async def _read(self, slot: str, command: Any, *arguments: Any, **options: Any) -> Any:
        """Read from a hash slot behind one's own writes to it."""
        if not await self.journal.flushed(slot, _FLUSH_TIMEOUT_S):
            raise unreachable()
        with self._reachable():
            return await command(*arguments, **options)

    async def _transact(self, slot: str, commands: Iterable[Command]) -> None:
        if not await self.journal.flushed(slot, _FLUSH_TIMEOUT_S):
            raise unreachable()
        with self._reachable():
            pipe = self._client.pipeline(transaction=True)
            for command in commands:
                pipe.execute_command(*command)
            await pipe.execute()

    async def _sessions(self, conversation_ids: Sequence[str]) -> list[Session]:
        with self._reachable():
            pipe = self._client.pipeline(transaction=False)
            for conversation_id in conversation_ids:
                pipe.hgetall(keys.session(tag_of(conversation_id)))
            sessions = map(forms.parse_session, await pipe.execute())
        return [session for session in sessions if session is not None]

    def _touch(self, tag: str) -> list[Command]:
        names = (keys.session(tag), keys.items(tag), keys.responses(tag))
        return [("EXPIRE", name, self._session_ttl_s) for name in names]

    def _index(self, session: Session) -> list[Command]:
        key = keys.index(session.owner)
        return [
            ("ZADD", key, session.last_used_at, session.conversation_id),
            ("ZREMRANGEBYSCORE", key, "-inf", time.time() - self._session_ttl_s - _CLOCK_ERROR_S),
            ("EXPIRE", key, self._session_ttl_s),
        ]

    def _write_running(self, command: Command, then: Callable[[], None] | None = None) -> None:
        self.journal.write("running", [command, ("EXPIRE", keys.RUNNING, self._session_ttl_s)], then=then)


def _index_slot(owner: str) -> str:
    return f"owner:{owner}"
