"""The log: lines for people, or JSON objects for machines, which also name the request and its owner.

What people write and are answered is logged by ``TEXTS`` only, and only where ``log_texts`` asks for it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import msgspec

from chatsrv.settings import ServerSettings

TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"

CURRENT: ContextVar[Mapping[str, Any] | None] = ContextVar("CURRENT", default=None)
"""The ASGI state of the request that is being answered; what it starts inherits it."""

TEXTS = logging.getLogger("chatsrv.texts")
TEXTS.disabled = True


def set_up(settings: ServerSettings) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else logging.Formatter(TEXT))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    TEXTS.disabled = not settings.log_texts
    logging.getLogger("uvicorn.error").addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """uvicorn takes a socket that was refused with an answer for one that got none, and calls it an error."""
    return record.msg != "ASGI callable returned without completing handshake."


class JsonFormatter(logging.Formatter):
    """One JSON object a line. ``extra={"fields": {…}}`` adds to it."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_request(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode({name: _encodable(value) for name, value in line.items()}).decode()


def _request() -> dict[str, str]:
    state = CURRENT.get() or {}
    found = {"request_id": state["request_id"]} if "request_id" in state else {}
    return found | ({"owner": state["caller"].owner} if "caller" in state else {})


def _encodable(value: Any) -> Any:
    return value.encode(errors="replace").decode() if isinstance(value, str) else value
