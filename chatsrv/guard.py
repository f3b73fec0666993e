"""At the door, before anything is accepted: is the request meant for this server, and does no strange page send it?

A browser sends any page's WebSocket and its forms with the user's network position, and CORS does not cover the
upgrade. So the Host must be a name of ours (against DNS rebinding), and an Origin, where there is one, must be the
page we serve ourselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from chatsrv.errors import Forbidden
from chatsrv.failures import refusal

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Guard:
    """Pure ASGI, so that streams pass unbuffered.

    Args:
        allowed_hosts: names this server is reached by, without ports; loopback names are always allowed.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Iterable[str]) -> None:
        self._app = app
        self._allowed_hosts = LOOPBACK | {host.lower() for host in allowed_hosts if host}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and (reason := self._objection(Headers(scope=scope))):
            await refusal(Forbidden(reason))(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _objection(self, headers: Headers) -> str | None:
        host = headers.get("host", "")
        if (_split(f"//{host}").hostname or "").lower() not in self._allowed_hosts:
            return "the Host header is none of this server's names; see the setting allowed_hosts"
        origin = headers.get("origin")
        if origin is not None and _split(origin).netloc.lower() != host.lower():
            return "requests from pages of other origins are not accepted"
        return None


def _split(url: str) -> SplitResult:
    """Its parts; of what is no URL they are empty."""
    try:
        return urlsplit(url)
    except ValueError:
        return urlsplit("")
