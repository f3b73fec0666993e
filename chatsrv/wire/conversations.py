"""Conversations on the wire: what may be sent, and what is answered."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct, field

from chatsrv.wire.create import Metadata
from chatsrv.wire.items import InputMessage

MAX_NEW_ITEMS = 20

NewItems = Annotated[list[InputMessage], Meta(max_length=MAX_NEW_ITEMS)]


class CreateConversation(Struct, kw_only=True, forbid_unknown_fields=True):
    items: NewItems | None = None
    metadata: Metadata | None = None


class UpdateConversation(Struct, kw_only=True, forbid_unknown_fields=True):
    metadata: Metadata | None


class CreateItems(Struct, kw_only=True, forbid_unknown_fields=True):
    """``parent_id`` is an extension: an item that the first of them follows, or "root"."""

    items: Annotated[list[InputMessage], Meta(min_length=1, max_length=MAX_NEW_ITEMS)]
    parent_id: str | None = None


class Conversation(Struct, kw_only=True, tag_field="object", tag="conversation"):
    id: str
    created_at: int
    metadata: dict[str, str]
    last_used_at: int


class DeletedConversation(Struct, kw_only=True, tag_field="object", tag="conversation.deleted"):
    id: str
    deleted: bool = True


class ConversationList(Struct, kw_only=True, tag_field="object", tag="list"):
    data: list[Conversation] = field(default_factory=list)
    has_more: bool = False
    first_id: str | None = None
    last_id: str | None = None
