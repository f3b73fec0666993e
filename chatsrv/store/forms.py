"""How records look in Redis: the commands that put them there, and what is read made records again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from chatsrv.records import ItemRecord, Session
from chatsrv.store import keys
from chatsrv.store.journal import Command
from chatsrv.wire.events import Entry, parse_entry

_encode = msgspec.json.Encoder().encode


def put_session(tag: str, session: Session) -> list[Command]:
    """Metadata is written by its own command only, so that a turn never undoes a new title."""
    key = keys.session(tag)
    current = {
        "owner": session.owner,
        "conversation_id": session.conversation_id,
        "last_used_at": session.last_used_at,
        "head_id": session.head_id,
    }
    return [
        ("HSET", key, *(part for pair in current.items() for part in pair)),
        ("HSETNX", key, "created_at", session.created_at),
        ("HSETNX", key, "metadata", _encode(session.metadata)),
    ]


def put_items(tag: str, items: Sequence[ItemRecord]) -> list[Command]:
    if not items:
        return []
    return [("HSET", keys.items(tag), *(part for item in items for part in (item.id, _encode(item))))]


def parse_session(fields: dict[bytes, bytes]) -> Session | None:
    if b"owner" not in fields:
        return None
    return Session(
        owner=fields[b"owner"].decode(),
        conversation_id=fields[b"conversation_id"].decode(),
        created_at=int(fields[b"created_at"]),
        last_used_at=float(fields[b"last_used_at"]),
        head_id=fields[b"head_id"].decode(),
        metadata=msgspec.json.decode(fields[b"metadata"], type=dict[str, str]),
    )


def parse_events(chunks: Iterable[tuple[bytes, dict[bytes, bytes]]]) -> Iterator[Entry]:
    for _, fields in chunks:
        yield from map(parse_entry, fields[b"events"].split(b"\n"))
