"""Events of a response, in the shapes of the ``openai`` client's types; each becomes JSON once, for all readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Struct, UnsetType

from chatsrv.errors import ErrorEvent
from chatsrv.wire.items import Logprob, OutputMessage, OutputText
from chatsrv.wire.response import Response, Status


class Event(Struct, kw_only=True, tag_field="type"):
    """``sequence_number`` is set when the event enters its response's log, ``stream_id`` on the way into a socket."""

    sequence_number: int = -1
    stream_id: str | UnsetType = UNSET


class _OfResponse(Event, kw_only=True):
    response: Response


class Created(_OfResponse, tag="response.created"):
    pass


class Queued(_OfResponse, tag="response.queued"):
    pass


class InProgress(_OfResponse, tag="response.in_progress"):
    pass


class Completed(_OfResponse, tag="response.completed"):
    pass


class Incomplete(_OfResponse, tag="response.incomplete"):
    pass


class Failed(_OfResponse, tag="response.failed"):
    pass


class Cancelled(_OfResponse, tag="response.cancelled"):
    pass


class ItemAdded(Event, kw_only=True, tag="response.output_item.added"):
    item: OutputMessage
    output_index: int = 0


class ItemDone(Event, kw_only=True, tag="response.output_item.done"):
    item: OutputMessage
    output_index: int = 0


class _OfContent(Event, kw_only=True):
    item_id: str
    output_index: int = 0
    content_index: int = 0


class PartAdded(_OfContent, kw_only=True, tag="response.content_part.added"):
    part: OutputText


class PartDone(_OfContent, kw_only=True, tag="response.content_part.done"):
    part: OutputText


class TextDelta(_OfContent, kw_only=True, tag="response.output_text.delta"):
    delta: str
    logprobs: list[Logprob] = []


class TextDone(_OfContent, kw_only=True, tag="response.output_text.done"):
    text: str
    logprobs: list[Logprob] = []


class Preempted(Event, kw_only=True, tag="chatsrv.preempted"):
    response_id: str


class Resumed(Event, kw_only=True, tag="chatsrv.resumed"):
    response_id: str


class Steer(Struct, kw_only=True):
    id: str
    previous_response_id: str


class SteerAccepted(Event, kw_only=True, tag="response.steer.accepted"):
    steer: Steer


class SteerError(Struct, kw_only=True):
    code: str
    message: str
    type: str = "invalid_request_error"


class UncommittedSteer(Struct, kw_only=True):
    previous_response_id: str
    input: str | list[dict[str, Any]]
    id: str | UnsetType = UNSET


class SteerFailed(Event, kw_only=True, tag="response.steer.failed"):
    error: SteerError
    steer: UncommittedSteer


class StreamError(Struct, kw_only=True, tag_field="type", tag="error"):
    """What broke an SSE stream, whose status is long sent; ``sequence_number`` is that of the last event before."""

    code: str
    message: str
    param: str | None
    sequence_number: int


ResponseEvent = (
    Created
    | Queued
    | InProgress
    | ItemAdded
    | PartAdded
    | TextDelta
    | TextDone
    | PartDone
    | ItemDone
    | SteerAccepted
    | Preempted
    | Resumed
    | Completed
    | Incomplete
    | Failed
    | Cancelled
)
"""All that can stand in a response's log."""

StreamedEvent = ResponseEvent | StreamError
ServerEvent = ResponseEvent | SteerFailed | ErrorEvent

_TERMINAL: dict[Status, type[_OfResponse]] = {
    "completed": Completed,
    "incomplete": Incomplete,
    "failed": Failed,
    "cancelled": Cancelled,
}

TERMINAL_TYPES = frozenset(f"response.{status}" for status in _TERMINAL)

_encode = msgspec.json.Encoder().encode


def terminal(response: Response) -> Event:
    """The one last event of a response, by its status."""
    return _TERMINAL[response.status](response=response)


class Entry(NamedTuple):
    """An event in a response's log. ``token_ids`` are the tokens of the answer that it tells; they are not sent."""

    sequence_number: int
    type: str
    data: bytes
    token_ids: tuple[int, ...] = ()

    @property
    def is_terminal(self) -> bool:
        return self.type in TERMINAL_TYPES


def entry(event: Event, sequence_number: int, token_ids: tuple[int, ...] = ()) -> Entry:
    event.sequence_number = sequence_number
    return Entry(sequence_number, str(type(event).__struct_config__.tag), _encode(event), token_ids)


class Told(NamedTuple):
    """A response as far as it is stored: its events from the first on, and the tokens of the answer that they tell."""

    entries: list[Entry]
    token_ids: list[int]

    @property
    def types(self) -> set[str]:
        return {entry.type for entry in self.entries}

    @property
    def deltas(self) -> list[TextDelta]:
        return [_decode_delta(entry.data) for entry in self.entries if entry.type == "response.output_text.delta"]

    @property
    def text(self) -> str:
        return "".join(delta.delta for delta in self.deltas)


class _Head(Struct):
    type: str
    sequence_number: int


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_delta = msgspec.json.Decoder(TextDelta).decode


def parse_entry(data: bytes) -> Entry:
    """An entry from its stored JSON."""
    head = _decode_head(data)
    return Entry(head.sequence_number, head.type, data)


def contiguous(entries: Iterable[Entry], starting_after: int) -> Iterator[Entry]:
    """Those that follow the number without a gap; what stands before them is left out."""
    expected = starting_after + 1
    for one in entries:
        if one.sequence_number == expected:
            expected += 1
            yield one
        elif one.sequence_number > expected:
            return


def merge_deltas(entries: list[Entry]) -> list[Entry]:
    """Join neighbouring text deltas; a joined one carries the last one's sequence number."""
    merged: list[Entry] = []
    for kind, group in groupby(entries, key=lambda entry: entry.type):
        run = list(group)
        merged += [_join(run)] if kind == "response.output_text.delta" and len(run) > 1 else run
    return merged


def _join(run: list[Entry]) -> Entry:
    deltas = [_decode_delta(event.data) for event in run]
    last = deltas[-1]
    last.delta = "".join(delta.delta for delta in deltas)
    last.logprobs = [logprob for delta in deltas for logprob in delta.logprobs]
    return entry(last, last.sequence_number)
