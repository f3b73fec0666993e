"""The errors themselves: one body for HTTP and for the socket, and statuses as the protocol page lists them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from msgspec import UNSET

from chatsrv import errors
from chatsrv.errors import ApiError, Busy, ErrorBody, InvalidField, NotResumable

PROTOCOL = Path(__file__).parents[2] / "docs" / "protocol.md"
KINDS = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, ApiError) and not kind.__name__.startswith("_")
]


def test_the_event_carries_the_body_of_the_http_answer() -> None:
    error = InvalidField("top_p", "top_p: must be above 0")
    told = msgspec.json.decode(msgspec.json.encode(error.event()))
    assert (told["type"], told["status"]) == ("error", 400)
    assert told["error"] == msgspec.json.decode(msgspec.json.encode(error.answer()))["error"]
    assert error.body() == ErrorBody(
        message="top_p: must be above 0", type="invalid_request_error", param="top_p", code="invalid_value"
    )


def test_the_response_whose_events_are_gone_stands_beside_the_error() -> None:
    error = NotResumable("gone", response={"id": "resp_x"})
    assert error.event().response == error.answer().response == {"id": "resp_x"}


def test_the_event_tells_what_the_headers_would() -> None:
    error = Busy("later", headers={"Retry-After": "3"})
    assert error.event().error.headers == {"retry-after": "3"}
    assert error.answer().error.headers is UNSET


def test_an_error_without_a_text_says_nothing_of_the_inside() -> None:
    assert ApiError().body().message == "the server failed to handle this request"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_status_and_type_is_documented_together(kind: type[ApiError]) -> None:
    rows = re.findall(r"^\| ([\d, ]+) \| (.*?) \|", PROTOCOL.read_text(encoding="utf-8"), re.MULTILINE)
    documented = {status.strip(): types for statuses, types in rows for status in statuses.split(",")}
    assert f"`{kind.type}`" in documented[str(kind.status)]


def test_the_tree_at_the_top_names_every_kind() -> None:
    for kind in KINDS:
        assert re.search(rf"\b{kind.__name__}\b", errors.__doc__ or ""), kind.__name__
