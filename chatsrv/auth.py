"""Who is asking: the one local owner, or, where there are keys, the owner of the key that came with the request.

A program sends its key as ``Authorization: Bearer KEY``. A browser cannot do that with a WebSocket, so the page trades
the key for a cookie that scripts cannot read and that no other site's page can make the browser send.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Literal, cast

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from chatsrv.errors import Unauthorized
from chatsrv.failures import refusal
from chatsrv.settings import SettingError

COOKIE = "chatsrv_key"

Role = Literal["user", "admin"]

_PROTECTED = ("/v1/", "/tokenize", "/detokenize")
_LINE = re.compile(r"(?P<name>[A-Za-z0-9_.@-]{1,64})\s+(?P<role>user|admin)\s+(?P<key>[A-Za-z0-9_-]{16,256})")


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who may ask.

    Attributes:
        owner: whose conversations they are; safe as part of a store's key.
    """

    owner: str
    role: Role = "user"

    @property
    def salt(self) -> bytes:
        """Keeps the owner's part of the prefix cache apart, so that nobody can time what another has asked."""
        return hashlib.sha256(b"chatsrv prefix cache owner\0" + self.owner.encode()).digest()


LOCAL = Caller("local", "admin")


class Keyring:
    """The API keys. They are found by their hash, so how long it takes tells nothing of them."""

    def __init__(self, callers: Mapping[bytes, Caller]) -> None:
        self._callers = callers

    @classmethod
    def read(cls, path: Path) -> Keyring:
        """From a file with a line for each key: owner, role (``user`` or ``admin``), key.

        Raises:
            SettingError: naming the line at fault.
        """
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingError(f"api_keys: {path} cannot be read: {error}") from None
        callers: dict[bytes, Caller] = {}
        for number, line in enumerate(lines, 1):
            text = line.partition("#")[0].strip()
            if not text:
                continue
            match = _LINE.fullmatch(text)
            if match is None:
                form = "OWNER ROLE KEY, with the role user or admin and a key of at least 16 letters, digits, _ or -"
                raise SettingError(f"api_keys: line {number} of {path} is not of the form {form}")
            owner = hashlib.sha256(match["name"].encode()).hexdigest()[:32]
            callers[_digest(match["key"])] = Caller(owner, cast(Role, match["role"]))
        return cls(callers)

    def caller(self, headers: Headers) -> Caller:
        """Whose key came with the request.

        Raises:
            Unauthorized: none did, or one that is not known.
        """
        found = self._callers.get(_digest(_key(headers)))
        if found is None:
            raise Unauthorized("a valid API key is required, as Authorization: Bearer KEY")
        return found


class Authentication:
    """Pure ASGI: settles who is asking before the application sees the request.

    Args:
        keyring: None lets everybody in as the local owner.
    """

    def __init__(self, app: ASGIApp, keyring: Keyring | None) -> None:
        self._app = app
        self._keyring = keyring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            try:
                scope.setdefault("state", {})["caller"] = self._caller(scope)
            except Unauthorized as error:
                await refusal(error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _caller(self, scope: Scope) -> Caller | None:
        if self._keyring is None:
            return LOCAL
        if not scope["path"].startswith(_PROTECTED) or scope["path"] == "/v1/login":
            return None
        return self._keyring.caller(Headers(scope=scope))


def caller(connection: HTTPConnection) -> Caller:
    """Who is asking."""
    found: Caller = connection.state.caller
    return found


def _key(headers: Headers) -> str:
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="replace")).digest()
