"""An operation of the HTTP interface: what the server routes by and what the OpenAPI document tells, declared once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from starlette.requests import Request
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp

from chatsrv.auth import guarded
from chatsrv.errors import ApiError, Busy, Forbidden, InvalidField, NotFound, TooLarge, Unauthorized, Unavailable
from chatsrv.keyring import Role

Endpoint = Callable[[Request], Awaitable[ASGIApp]]


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of a path.

    Attributes:
        summary: what it does, in a few words.
        answers: type of the JSON answer.
        body: type of the JSON body; it may be left out where ``body_is_optional``.
        query: type whose fields are the query parameters.
        events: types of the events' JSON data, or data as it stands, of the SSE stream that clients may ask for.
        raises: errors beyond those that follow from the rest.
        unwell: type of the JSON answer with status 503, where that is no error.
        role: who may use it where there are keys; None lets everybody.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    endpoint: Endpoint
    summary: str
    answers: Any
    body: Any = None
    body_is_optional: bool = False
    query: Any = None
    events: tuple[Any, ...] = ()
    raises: tuple[type[ApiError], ...] = ()
    unwell: Any = None
    role: Role | None = "user"

    @property
    def errors(self) -> list[type[ApiError]]:
        """All errors that it may answer, by status."""
        kinds: set[type[ApiError]] = {ApiError, Forbidden, *self.raises}
        if self.unwell is None:
            kinds.add(Unavailable)
        if self.role is not None:
            kinds |= {Unauthorized, Busy}
        if self.body is not None:
            kinds |= {InvalidField, TooLarge}
        if self.query is not None:
            kinds.add(InvalidField)
        if "{" in self.path:
            kinds.add(NotFound)
        return sorted(kinds, key=lambda kind: kind.status)


def routes(operations: Iterable[Operation]) -> list[Route | WebSocketRoute]:
    """A route for each path, which refuses other methods and tells those that there are. Order within it is kept."""
    found: list[Route | WebSocketRoute] = []
    for (path, role), group in groupby(operations, key=lambda operation: (operation.path, operation.role)):
        endpoints: dict[str, Endpoint] = {operation.method: operation.endpoint for operation in group}
        route = Route(path, _by_method(endpoints), methods=list(endpoints))
        found += [route] if role is None else guarded(role, [route])
    return found


def _by_method(endpoints: Mapping[str, Endpoint]) -> Endpoint:
    async def endpoint(request: Request) -> ASGIApp:
        return await endpoints["GET" if request.method == "HEAD" else request.method](request)

    return endpoint
