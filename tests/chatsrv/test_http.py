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
from chatsrv.http import error_response, page_query, query_choice, query_int, read_body, unless_disconnected


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


@pytest.mark.parametrize(("query", "value"), [("", 20), ("limit=1", 1), ("limit=100", 100)])
def test_numbers_in_the_query(query: str, value: int) -> None:
    assert query_int(_request(query), "limit", 20, 1, 100) == value


@pytest.mark.parametrize("text", ["0", "101", "-1", "1.5", "x", "", "9" * 5000])
def test_a_bad_number_names_its_limits(text: str) -> None:
    with pytest.raises(InvalidField, match="limit: must be a whole number from 1 to 100") as caught:
        query_int(_request(f"limit={text}"), "limit", 20, 1, 100)
    assert len(caught.value.message) < 120


def test_choices_in_the_query() -> None:
    assert query_choice(_request(), "order", "desc", ("asc", "desc")) == "desc"
    with pytest.raises(InvalidField, match="order: must be one of asc, desc"):
        query_choice(_request("order=up"), "order", "desc", ("asc", "desc"))


def test_pages_are_newest_first_by_default() -> None:
    assert page_query(_request()) == {"limit": 20, "after": None, "newest_first": True}
    assert page_query(_request("limit=5&after=x&order=asc")) == {"limit": 5, "after": "x", "newest_first": False}


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
