"""What all HTTP endpoints share: bodies within limits, checked query parameters, JSON answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from chatsrv.errors import TooLarge
from chatsrv.failures import refusal
from chatsrv.keyring import LOCAL, Caller
from chatsrv.services import services
from chatsrv.wire import strict

T = TypeVar("T")

CLIENT_CLOSED_REQUEST = 499


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")


async def error_response(request: Request, error: Exception) -> Response:
    """Starlette's handler of all exceptions."""
    return refusal(error)


async def no_response(request: Request, error: Exception) -> Response:
    """To a client that has left. Nobody hears it; the log and the metrics have the status that nginx gives this."""
    return Response(status_code=CLIENT_CLOSED_REQUEST)


async def read_body(request: Request, kind: type[T], default: T | None = None) -> T:
    """The checked body; an empty one is ``default``, if there is one."""
    limit = _max_body_bytes(request)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise TooLarge(f"the body is larger than {limit} bytes")
    if not body and default is not None:
        return default
    return strict.decode(bytes(body), kind)


def read_query(request: Request, kind: type[T]) -> T:
    """The checked query parameters; of one that is repeated, the last."""
    return strict.convert(dict(request.query_params), kind, from_text=True)


def _max_body_bytes(request: Request) -> int:
    limit = services(request).settings.max_message_bytes
    caller: Caller = getattr(request.state, "caller", LOCAL)  # who signs in is nobody yet
    return min(limit, caller.limits.max_message_bytes or limit)


async def unless_disconnected(request: Request, work: Awaitable[T]) -> T:
    """The result of the work, which is cancelled if the client leaves first.

    Raises:
        ClientDisconnect: it left.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
