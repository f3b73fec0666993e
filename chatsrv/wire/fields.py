"""What may stand in a field that the types alone do not tell: nothing, one of a few values, or whatever it is."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from msgspec import Meta, structs

from chatsrv.errors import UnsupportedField

Ignored = Annotated[Any, Meta(description="Accepted, without effect.")]
Unsupported = Annotated[Any, Meta(description="Refused unless null.", extra_json_schema={"type": "null"})]
"""A field of the standard that would change the answer if we honoured it, which we cannot."""

NoTools = Annotated[list[Any], Meta(extra_json_schema={"maxItems": 0})]


def only(*values: object) -> Meta:
    """All that a field accepts; whoever declares it also checks it."""
    return Meta(extra_json_schema={"enum": list(values)})


NoToolChoice = Annotated[Any, only(None, "none", "auto")]


def check_supported(request: Any) -> None:
    """Refuse the ``Unsupported`` fields if they are set, and any use of tools."""
    for name in _unsupported(request.__class__):
        if getattr(request, name) is not None:
            raise UnsupportedField(name, f"{name}: not supported by this server")
    if request.tools:
        raise UnsupportedField("tools", "tools: not supported by this server; only an empty list is accepted")
    if request.tool_choice not in (None, "none", "auto"):
        raise UnsupportedField("tool_choice", 'tool_choice: only "none" and "auto" are supported')


@cache
def _unsupported(kind: Any) -> list[str]:
    return [field.name for field in structs.fields(kind) if field.type == Unsupported]
