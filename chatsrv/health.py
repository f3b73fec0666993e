"""``/healthz``: does the engine advance while it has work? ``/readyz``: are requests welcome?"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.types import ASGIApp

from chatsrv.http import json_response
from chatsrv.services import services

MAX_STEP_AGE_S = 120.0
"""A step that takes longer has hung: generous, for a long prompt on a busy machine is no failure."""


class Health(Struct, kw_only=True):
    status: Literal["ok", "engine_stalled"]


class Readiness(Struct, kw_only=True):
    status: Literal["ok", "degraded", "not_ready"]
    engine: Literal["ok", "stalled"]
    store: Literal["ok", "unreachable"]


async def healthz(request: Request) -> ASGIApp:
    is_healthy = _engine_advances(request)
    return json_response(Health(status="ok" if is_healthy else "engine_stalled"), 200 if is_healthy else 503)


async def readyz(request: Request) -> ASGIApp:
    """Not ready without an engine. Without a store answers still work but are not kept: ready, and degraded."""
    engine_ok = _engine_advances(request)
    store_ok = await services(request).store.is_reachable()
    body = Readiness(
        status="ok" if engine_ok and store_ok else "degraded" if engine_ok else "not_ready",
        engine="ok" if engine_ok else "stalled",
        store="ok" if store_ok else "unreachable",
    )
    return json_response(body, 200 if engine_ok else 503)


def _engine_advances(request: Request) -> bool:
    health = services(request).engine.health()
    return health.alive and not (health.busy and health.last_step_age_s > MAX_STEP_AGE_S)
