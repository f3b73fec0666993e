"""Every way chatsrv says no to a client, with its status and its code on the wire.

ApiError
├── InvalidJson           400  the text is not JSON as we accept it
├── InvalidField          400  a field is missing, of a wrong type or beyond a limit
│   ├── UnknownField      400  a field that nobody has heard of
│   └── UnsupportedField  400  a field of the standard that we cannot honour
├── NotResumable          400  the events are gone, or all told; the answer may still be there
├── Unauthorized          401  no key, or none that we know
├── NotFound              404  no such thing, or somebody else's
├── Forbidden             403  wrong origin or host
├── MethodNotAllowed      405
├── TooLarge              413
├── Busy                  429  worth retrying later
└── Unavailable           503  a part of the server is down
    └── Restarting        503  this server is going; another one, or the next, takes over
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import UNSET, Struct, UnsetType


class ErrorBody(Struct, kw_only=True):
    """What every error tells, over HTTP and in ``error`` events.

    Attributes:
        param: the field at fault.
        headers: in events only, what the headers of an HTTP answer would tell, by their names in small letters.
    """

    message: str
    type: str
    param: str | None
    code: str
    headers: dict[str, str] | UnsetType = UNSET


class ErrorAnswer(Struct, kw_only=True):
    """``response``, in its final state, comes where no events of it can follow."""

    error: ErrorBody
    response: Any | UnsetType = UNSET


class ErrorEvent(ErrorAnswer, kw_only=True, tag_field="type", tag="error"):
    """A request of a WebSocket is refused. ``stream_id`` is the request's, where it had one."""

    status: int
    stream_id: str | UnsetType = UNSET


class ApiError(Exception):
    """An answer to the client. Raised as such it is our fault: 500, and the text says nothing of the inside.

    Attributes:
        code: machine-readable reason.
        param: the field at fault, as the client spelled it.
        headers: of the HTTP answer.
        response: told beside the error.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    default_code: ClassVar[str] = "server_error"

    def __init__(
        self,
        message: str = "the server failed to handle this request",
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code or self.default_code
        self.headers = dict(headers or {})
        self.response: Any = UNSET

    def body(self) -> ErrorBody:
        """The error object, alike in HTTP bodies and in ``error`` events."""
        return ErrorBody(message=self.message, type=self.type, param=self.param, code=self.code)

    def answer(self) -> ErrorAnswer:
        """The body of the HTTP answer."""
        return ErrorAnswer(error=self.body(), response=self.response)

    def event(self) -> ErrorEvent:
        """The ``error`` event of the WebSocket protocol."""
        error = self.body()
        if self.headers:
            error.headers = {name.lower(): value for name, value in self.headers.items()}
        return ErrorEvent(status=self.status, error=error, response=self.response)


class _Refused(ApiError):
    status = 400
    type = "invalid_request_error"


class InvalidJson(_Refused):
    default_code = "invalid_json"


class InvalidField(_Refused):
    default_code = "invalid_value"

    def __init__(self, param: str | None, message: str, *, code: str | None = None) -> None:
        super().__init__(message, param=param, code=code)


class UnknownField(InvalidField):
    default_code = "unknown_field"


class UnsupportedField(InvalidField):
    default_code = "unsupported_field"


class NotResumable(_Refused):
    default_code = "not_resumable"

    def __init__(self, message: str, *, response: Any, code: str | None = None) -> None:
        super().__init__(message, code=code)
        self.response = response


class NotFound(_Refused):
    status = 404
    default_code = "not_found"


class MethodNotAllowed(_Refused):
    status = 405
    default_code = "method_not_allowed"


class Unauthorized(ApiError):
    status = 401
    type = "authentication_error"
    default_code = "invalid_api_key"

    def __init__(self, message: str) -> None:
        super().__init__(message, headers={"WWW-Authenticate": "Bearer"})


class Forbidden(ApiError):
    status = 403
    type = "permission_error"
    default_code = "forbidden"


class TooLarge(_Refused):
    status = 413
    default_code = "request_too_large"


class Busy(ApiError):
    status = 429
    type = "rate_limit_error"
    default_code = "queue_full"


class Unavailable(ApiError):
    status = 503
    default_code = "store_unavailable"


class Restarting(Unavailable):
    default_code = "server_restarting"

    def __init__(self) -> None:
        super().__init__("the server restarts; try again, or resume, in a moment", headers={"Retry-After": "1"})
