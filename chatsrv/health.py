"""``/healthz``: does all that must run still advance? ``/readyz``: are requests welcome?"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.types import ASGIApp

from chatsrv.http import json_response
from chatsrv.services import Services, services

MAX_STEP_AGE_S = 120.0
"""A step that takes longer has hung: generous, for a long prompt on a busy machine is no failure."""


Status = Literal["ok", "degraded", "draining", "not_ready"]


class Health(Struct, kw_only=True):
    status: Literal["ok", "engine_stalled", "task_died"]


class Readiness(Struct, kw_only=True):
    status: Status
    engine: Literal["ok", "stalled"]
    store: Literal["ok", "unreachable"]


async def healthz(request: Request) -> ASGIApp:
    """503 where only a restart helps."""
    if not engine_advances(services(request)):
        return json_response(Health(status="engine_stalled"), 503)
    if not _tasks_run(services(request)):
        return json_response(Health(status="task_died"), 503)
    return json_response(Health(status="ok"))


async def readyz(request: Request) -> ASGIApp:
    """Not ready without an engine, or while the server goes. Without a store answers still work but are not kept:
    ready, and degraded."""
    is_draining = services(request).responses.drain.is_begun
    engine_ok = engine_advances(services(request))
    store_ok = _tasks_run(services(request)) and await services(request).store.is_reachable()
    body = Readiness(
        status=_status(engine_ok, store_ok, is_draining),
        engine="ok" if engine_ok else "stalled",
        store="ok" if store_ok else "unreachable",
    )
    return json_response(body, 200 if engine_ok and not is_draining else 503)


def _status(engine_ok: bool, store_ok: bool, is_draining: bool) -> Status:
    if not engine_ok:
        return "not_ready"
    if is_draining:
        return "draining"
    return "ok" if store_ok else "degraded"


def engine_advances(found: Services) -> bool:
    health = found.engine.health()
    return health.alive and not (health.busy and health.last_step_age_s > MAX_STEP_AGE_S)


def _tasks_run(found: Services) -> bool:
    """Whether none of the tasks has died that write behind, beat, and listen for other servers."""
    return found.store.is_running and found.responses.is_running
