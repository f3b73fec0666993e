"""What the commands put into a store is read as the same records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chatsrv.records import ItemRecord, Session
from chatsrv.store import forms, keys
from chatsrv.store.journal import Command
from chatsrv.wire.events import Entry, Preempted, entry

TAG = "AbC-_1234567"
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


def stored(commands: list[Command]) -> dict[bytes, bytes]:
    """The fields of one hash after these commands, as a store gives them back."""
    fields: dict[bytes, bytes] = {}
    for verb, _, *pairs in commands:
        for name, value in zip(pairs[::2], pairs[1::2], strict=True):
            data = value if isinstance(value, bytes) else str(value).encode()
            if verb == "HSET" or name.encode() not in fields:
                fields[name.encode()] = data
    return fields


@given(TEXT, st.floats(0, 1e10), st.dictionaries(TEXT, TEXT, max_size=3))
def test_a_session_comes_back(head_id: str, last_used_at: float, metadata: dict[str, str]) -> None:
    session = Session(owner="me", created_at=7, last_used_at=last_used_at, head_id=head_id, metadata=metadata)
    assert forms.parse_session(stored(forms.put_session(TAG, session))) == session


def test_a_turn_leaves_title_and_age_of_a_session_alone() -> None:
    old = Session(owner="me", created_at=7, last_used_at=1.0, metadata={"title": "old"})
    new = Session(owner="me", created_at=8, last_used_at=2.0, metadata={})
    found = forms.parse_session(stored([*forms.put_session(TAG, old), *forms.put_session(TAG, new)]))
    assert found is not None
    assert (found.created_at, found.last_used_at, found.metadata) == (7, 2.0, {"title": "old"})


def test_of_a_session_that_has_expired_there_is_none() -> None:
    assert forms.parse_session({}) is None
    assert forms.parse_session({b"metadata": b"{}"}) is None, "a title that was written after the end is no session"


def test_items_lie_in_one_hash_and_none_need_no_command() -> None:
    items = [ItemRecord(id="msg_1", role="user", text="a"), ItemRecord(id="msg_2", role="assistant", text="b")]
    (command,) = forms.put_items(TAG, items)
    assert command[:2] == ("HSET", keys.items(TAG))
    assert list(stored([command])) == [b"msg_1", b"msg_2"]
    assert forms.put_items(TAG, []) == []


def test_events_come_back_in_order_out_of_the_chunks_they_were_written_in() -> None:
    written = [entry(Preempted(response_id=f"resp_{number}"), number) for number in range(5)]

    def chunk(entries: list[Entry]) -> tuple[bytes, dict[bytes, bytes]]:
        return b"0-1", {b"events": b"\n".join(one.data for one in entries)}

    assert list(forms.parse_events([chunk(written[:2]), chunk(written[2:])])) == written
