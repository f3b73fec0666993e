"""``/v1/login``: the page trades a key for a cookie, and gives it back."""

from __future__ import annotations

from msgspec import Struct
from starlette.requests import Request
from starlette.types import ASGIApp

from chatsrv.auth import COOKIE
from chatsrv.http import json_response, read_body
from chatsrv.keyring import Role
from chatsrv.services import services

COOKIE_LIFE_S = 30 * 24 * 3600


class Login(Struct, kw_only=True, forbid_unknown_fields=True):
    key: str


class Access(Struct, kw_only=True):
    """What whoever asks with the cookie may do; null without one."""

    role: Role | None


async def login(request: Request) -> ASGIApp:
    body = await read_body(request, Login)
    keyring = services(request).keyring
    found = keyring.find(body.key)
    if keyring.is_open:
        return json_response(Access(role=found.role))
    response = json_response(Access(role=found.role))
    secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, body.key, COOKIE_LIFE_S, httponly=True, samesite="strict", secure=secure)
    return response


async def logout(request: Request) -> ASGIApp:
    response = json_response(Access(role=None))
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response
