"""Who is asking, and may they: the one local owner, or, where there are keys, the owner of the key that came along.

A program sends its key as ``Authorization: Bearer KEY``. A browser cannot do that with a WebSocket, so the page trades
the key for a cookie that scripts cannot read and that no other site's page can make the browser send.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chatsrv.account import Account
from chatsrv.errors import ApiError, Forbidden
from chatsrv.failures import refusal
from chatsrv.guard import LOOPBACK
from chatsrv.keyring import Caller, Keyring, Role
from chatsrv.services import services

COOKIE = "chatsrv_key"
POLICY_VIOLATION = 1008
IDLE_CHECK_S = 5.0


class Authentication:
    """Pure ASGI around a route: settles who is asking before the route sees the request.

    Args:
        role: that is needed. What admins see tells of all owners: where there are no keys it is shown on the server's
            own machine only.
    """

    def __init__(self, app: ASGIApp, role: Role) -> None:
        self._app = app
        self._role = role

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        keyring = services(connection).keyring
        try:
            found = keyring.find(_key(connection.headers))
            account = self._account(found, connection)
            account.take("connections")
        except ApiError as error:
            await refusal(error)(scope, receive, send)
            return
        scope.setdefault("state", {})["caller"] = found
        if scope["type"] == "websocket":
            socket = _GuardedSocket(receive, send, keyring, lambda: self._account(keyring.current(found), connection))
            receive, send = socket.receive, socket.send
        try:
            await self._app(scope, receive, send)
        finally:
            account.give_back("connections")

    def _account(self, found: Caller, connection: HTTPConnection) -> Account:
        """The caller's account, under the limits that hold now, if the role is enough."""
        if self._role == "admin":
            if found.role != "admin":
                raise Forbidden("this takes the key of an admin")
            if services(connection).keyring.is_open and not _is_local(connection):
                raise Forbidden("without API keys this is shown on the server's own machine only")
        return services(connection).accounts.of(found)


class _GuardedSocket:
    """Checks the key again when keys have changed: with each message in either direction, and now and then without.

    It closes the socket once it may no longer be open.
    """

    def __init__(self, receive: Receive, send: Send, keyring: Keyring, check: Callable[[], object]) -> None:
        self._receive = receive
        self._send = send
        self._keyring = keyring
        self._check = check
        self._checked: int | None = None  # keys may have changed since the caller was found
        self._idle_check_s = None if keyring.is_open else IDLE_CHECK_S

    async def receive(self) -> Message:
        message = None
        while message is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._idle_check_s):
                    message = await self._receive()
            if message is not None and message["type"] == "websocket.disconnect":
                return message
            if not self._is_allowed():
                await self._close()
                return {"type": "websocket.disconnect", "code": POLICY_VIOLATION}
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "websocket.send" and not self._is_allowed():
            await self._close()
            raise OSError("the socket is closed: its key has been taken away")
        await self._send(message)

    def _is_allowed(self) -> bool:
        revision = self._keyring.revision
        if revision != self._checked:
            try:
                self._check()
            except ApiError:
                return False
            self._checked = revision
        return True

    async def _close(self) -> None:
        reason = "the API key is no longer valid"
        with suppress(RuntimeError, OSError):  # it was closed already
            await self._send({"type": "websocket.close", "code": POLICY_VIOLATION, "reason": reason})


def guarded(role: Role, routes: Iterable[Route | WebSocketRoute]) -> list[Route | WebSocketRoute]:
    """The same routes, for those who have the role."""
    found = list(routes)
    for route in found:
        route.app = Authentication(route.app, role)
    return found


def caller(connection: HTTPConnection) -> Caller:
    """Who is asking."""
    found: Caller = connection.state.caller
    return found


def _is_local(connection: HTTPConnection) -> bool:
    return connection.client is not None and connection.client.host in LOOPBACK


def _key(headers: Headers) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""
