"""What endpoints share: bodies within limits, checked query parameters, and work that ends with its client."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from starlette.requests import ClientDisconnect, Request

from chatsrv import http
from chatsrv.errors import InvalidField, InvalidJson, TooLarge
from chatsrv.http import error_response, read_body, read_query, unless_disconnected
from chatsrv.wire.query import Page


class Body(msgspec.Struct, forbid_unknown_fields=True):
    name: str


def _request(query: str = "", body: tuple[bytes, ...] = (), disconnects: bool = True) -> Request:
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in body]
    messages.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> dict[str, Any]:
        if messages:
            return messages.pop(0)
        if not disconnects:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": query.encode(), "headers": []}
    return Request(scope, receive)


@pytest.fixture(autouse=True)
def _limit(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SimpleNamespace(max_message_bytes=20)
    monkeypatch.setattr(http, "services", lambda request: SimpleNamespace(settings=settings))


async def test_a_body_comes_in_any_number_of_chunks() -> None:
    assert await read_body(_request(body=(b'{"na', b'me":"x"}')), Body) == Body("x")


async def test_an_empty_body_is_the_default_where_there_is_one() -> None:
    assert await read_body(_request(), Body, Body("default")) == Body("default")
    with pytest.raises(InvalidJson):
        await read_body(_request(), Body)


async def test_a_body_beyond_the_limit_is_refused_before_it_has_all_come() -> None:
    with pytest.raises(TooLarge, match="larger than 20 bytes"):
        await read_body(_request(body=(b"x" * 15, b"x" * 15)), Body)


def test_the_query_is_read_into_its_type_and_other_parameters_are_left_alone() -> None:
    assert read_query(_request(), Page) == Page(limit=20, after=None, order="desc")
    assert read_query(_request("limit=100&after=x&order=asc&include=y"), Page) == Page(
        limit=100, after="x", order="asc"
    )


@pytest.mark.parametrize("text", ["0", "101", "-1", "1.5", "x", "", "9" * 5000])
def test_a_bad_number_in_the_query_is_named(text: str) -> None:
    with pytest.raises(InvalidField, match=r"^limit: ") as caught:
        read_query(_request(f"limit={text}"), Page)
    assert caught.value.param == "limit"
    assert len(caught.value.message) < 120


def test_choices_in_the_query() -> None:
    with pytest.raises(InvalidField, match=r"^order: "):
        read_query(_request("order=up"), Page)


async def test_an_error_is_answered_as_json() -> None:
    answer = await error_response(_request(), InvalidField("input", "input: is missing"))
    assert answer.status_code == 400
    assert msgspec.json.decode(answer.body)["error"]["param"] == "input"


async def test_work_ends_when_its_client_leaves() -> None:
    was_cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise

    with pytest.raises(ClientDisconnect):
        await unless_disconnected(_request(), work())
    assert was_cancelled.is_set()


async def test_work_that_is_done_counts_and_its_error_too() -> None:
    async def good() -> int:
        return 7

    async def bad() -> None:
        raise InvalidJson("no")

    assert await unless_disconnected(_request(disconnects=False), good()) == 7
    with pytest.raises(InvalidJson):
        await unless_disconnected(_request(disconnects=False), bad())
