"""The one table from exceptions to answers. Nothing of a traceback ever leaves the server."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from chatsrv.errors import ApiError, Busy, InvalidField, MethodNotAllowed, NotFound, Unavailable
from engine import EngineStopped, InvalidRequest, QueueFull, RequestFailed

log = logging.getLogger("chatsrv")


def _busy(error: QueueFull) -> ApiError:
    return Busy(str(error), headers={"Retry-After": str(max(1, math.ceil(error.retry_after_s)))})


def _failed(error: RequestFailed) -> ApiError:
    log.error("a request failed: %s", error)
    return ApiError("the model failed on this request")


def _http(error: HTTPException) -> ApiError:
    kind = {404: NotFound, 405: MethodNotAllowed}.get(error.status_code, ApiError)
    return kind(str(error.detail), headers=error.headers)


def refusal(error: Exception) -> Response:
    """The HTTP answer to an exception; also to the request of a WebSocket that is not accepted."""
    answer = answer_to(error)
    return Response(msgspec.json.encode(answer.answer()), answer.status, answer.headers, "application/json")


_TABLE: dict[type[Exception], Callable[[Any], ApiError]] = {
    ApiError: lambda error: error,
    InvalidRequest: lambda error: InvalidField(error.field, str(error), code=error.code),
    QueueFull: _busy,
    RequestFailed: _failed,
    EngineStopped: lambda error: Unavailable("the engine has stopped", code="engine_stopped"),
    HTTPException: _http,
}


def answer_to(error: Exception) -> ApiError:
    """What the client is told of this exception; the unexpected is logged in full and told as ``server_error``."""
    for kind in type(error).__mro__:
        if kind in _TABLE:
            return _TABLE[kind](error)
    log.error("unexpected error", exc_info=error)
    return ApiError()
