"""Query parameters. Those that are not named here are not looked at."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

MAX_PAGE = 100
DEFAULT_PAGE = 20


class Page(Struct, kw_only=True):
    """A part of a list: the ``limit`` values behind the one with the id ``after``."""

    limit: Annotated[int, Meta(ge=1, le=MAX_PAGE)] = DEFAULT_PAGE
    after: str | None = None
    order: Literal["asc", "desc"] = "desc"

    @property
    def newest_first(self) -> bool:
        return self.order == "desc"


class ConversationSearch(Page, kw_only=True):
    """``query`` is looked for in the titles."""

    query: Annotated[str, Meta(max_length=200)] = ""


class Retrieve(Struct, kw_only=True):
    """With ``stream`` the events after the sequence number ``starting_after``, then the live ones."""

    stream: bool = False
    starting_after: Annotated[int, Meta(ge=-1, le=2**53)] = -1
