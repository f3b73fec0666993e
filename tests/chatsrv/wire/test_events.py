"""Events: each becomes JSON once, is found again from its JSON, and deltas can be joined."""

from __future__ import annotations

import msgspec

from chatsrv.wire.events import Entry, ItemAdded, TextDelta, entry, merge_deltas, parse_entry
from chatsrv.wire.items import Logprob, OutputMessage

ITEM = OutputMessage(id="msg_1", status="in_progress", content=[], created_at=1, parent_id=None, response_id="r")


def _delta(text: str, number: int) -> Entry:
    logprob = Logprob(token=text, logprob=-1.0, bytes=list(text.encode()), top_logprobs=[])
    return entry(TextDelta(item_id="msg_1", delta=text, logprobs=[logprob]), number)


def test_a_stored_event_is_the_same_entry_again() -> None:
    original = _delta("é", 3)
    assert parse_entry(original.data) == original


def test_only_the_last_events_of_a_response_are_terminal() -> None:
    ends = [Entry(0, f"response.{status}", b"") for status in ("completed", "incomplete", "failed", "cancelled")]
    others = [_delta("x", 0), Entry(0, "response.created", b""), Entry(0, "response.output_item.done", b"")]
    assert all(end.is_terminal for end in ends)
    assert not any(other.is_terminal for other in others)


def test_neighbouring_deltas_become_one_with_the_last_number() -> None:
    added = entry(ItemAdded(item=ITEM), 0)
    merged = merge_deltas([added, _delta("Hel", 1), _delta("lo", 2), _delta("!", 3)])
    assert [one.sequence_number for one in merged] == [0, 3]
    delta = msgspec.json.decode(merged[1].data)
    assert delta["delta"] == "Hello!"
    assert delta["sequence_number"] == 3
    assert [one["token"] for one in delta["logprobs"]] == ["Hel", "lo", "!"]


def test_deltas_with_something_between_them_stay_apart() -> None:
    added = entry(ItemAdded(item=ITEM), 2)
    entries = [_delta("a", 1), added, _delta("b", 3)]
    assert merge_deltas(entries) == entries
    assert merge_deltas([]) == []
