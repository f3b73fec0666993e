"""Around everything: each request gets an id and a span, is counted, and leaves a line in the log at its end."""

from __future__ import annotations

import logging
import re
import secrets
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chatsrv.counters import REQUESTS, SOCKETS
from chatsrv.logs import CURRENT
from chatsrv.traces import Attributes, Span

log = logging.getLogger("chatsrv.access")

HEADER = "X-Request-Id"

_FORM = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
_SWITCHING_PROTOCOLS = 101


class Access:
    """Pure ASGI, outside of the application, so that what breaks in it is noticed too.

    A request id comes from the proxy in front, if it gave one, and goes back to the client.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request = _Request(scope, send)
        CURRENT.set(scope["state"])  # each request has a task, and so a context, of its own
        try:
            await self._app(scope, receive, request.send)
        finally:
            request.end()


class _Request:
    def __init__(self, scope: Scope, send: Send) -> None:
        headers = Headers(scope=scope)
        given = headers.get(HEADER, "")
        self._id = given if _FORM.fullmatch(given) else secrets.token_urlsafe(12)
        scope.setdefault("state", {})["request_id"] = self._id
        self._scope = scope
        self._send = send
        self._began = time.monotonic()
        self._status = 500
        self._is_socket = False
        self._span = Span(headers)

    async def send(self, message: Message) -> None:
        match message["type"]:
            case "http.response.start" | "websocket.http.response.start":
                self._status = message["status"]
                self._add_id(message)
            case "websocket.accept":
                self._status = _SWITCHING_PROTOCOLS
                self._add_id(message)
                self._is_socket = True
                SOCKETS.inc()
                self._end_span()  # the socket may stay open for days
        await self._send(message)

    def _add_id(self, message: Message) -> None:
        message.setdefault("headers", [])
        MutableHeaders(scope=message)[HEADER] = self._id

    def end(self) -> None:
        if self._is_socket:
            SOCKETS.dec()
        self._end_span()
        method, route = self._method_and_route()
        REQUESTS.labels(method, route, self._status).inc()
        duration_s = time.monotonic() - self._began
        fields = {"method": method, "route": route, "status": self._status, "duration_s": round(duration_s, 4)}
        level = logging.DEBUG if route in _PROBES else logging.INFO
        log.log(level, "%s %s %d in %.3f s", method, route, self._status, duration_s, extra={"fields": fields})

    def _end_span(self) -> None:
        method, route = self._method_and_route()
        attributes: Attributes = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": self._status,
            "chatsrv.request_id": self._id,
        }
        self._span.end(f"{method} {route}", attributes, failed=self._status >= 500)

    def _method_and_route(self) -> tuple[str, str]:
        method = self._scope.get("method", "GET")  # of an upgrade it is not told
        return method if method in _METHODS else "other", getattr(self._scope.get("route"), "path", "none")
