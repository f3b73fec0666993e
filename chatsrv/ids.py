"""Identifiers: unguessable, safe as parts of keys, and telling by themselves which session they belong to.

``resp_`` + 12 characters of the session's tag + 20 of its own. All identifiers of one session (a conversation, or a
chain of responses without one) share the tag, so the store finds the session of a response without an index, and the
keys of a session live in one hash slot. The 20 own characters hold 120 random bits.
"""

from __future__ import annotations

import re
import secrets
from typing import Literal

Kind = Literal["resp", "conv", "msg"]

_TAG_CHARS = 12
_FORM = re.compile(r"(?P<kind>resp|conv|msg)_(?P<tag>[A-Za-z0-9_-]{12})[A-Za-z0-9_-]{20}")


def new_tag() -> str:
    return secrets.token_urlsafe(9)


def new_id(kind: Kind, tag: str) -> str:
    return f"{kind}_{tag}{secrets.token_urlsafe(15)}"


def has_form(text: str, kind: Kind) -> bool:
    """Whether the text may be an identifier of this kind; checked before it becomes part of a key."""
    match = _FORM.fullmatch(text)
    return match is not None and match["kind"] == kind


def pattern(kind: Kind) -> str:
    """A regular expression for all identifiers of a kind."""
    return f"^{kind}_[A-Za-z0-9_-]{{32}}$"


def tag_of(identifier: str) -> str:
    """The session's tag in a well-formed identifier."""
    match = _FORM.fullmatch(identifier)
    assert match is not None, identifier
    return match["tag"]
