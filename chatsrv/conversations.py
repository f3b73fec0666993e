"""Conversations: creating, reading, editing and deleting the trees that responses grow."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from chatsrv.errors import NotFound
from chatsrv.ids import new_id, new_tag, tag_of
from chatsrv.item_tree import ItemTree, page
from chatsrv.keyring import Caller
from chatsrv.records import ItemRecord, Session, chain
from chatsrv.responses import Responses, check_none_grows
from chatsrv.store import Store
from chatsrv.wire.conversations import Conversation, ConversationList
from chatsrv.wire.items import InputMessage, ItemList
from chatsrv.wire.query import ConversationSearch, Page


class Conversations:
    """The conversations of all owners."""

    def __init__(self, store: Store, responses: Responses) -> None:
        self._store = store
        self._responses = responses

    async def create(self, caller: Caller, messages: Sequence[InputMessage], metadata: dict[str, str]) -> Conversation:
        tag = new_tag()
        now = time.time()
        session = Session(
            owner=caller.owner,
            conversation_id=new_id("conv", tag),
            created_at=int(now),
            last_used_at=now,
            metadata=metadata,
        )
        items = chain(tag, messages, None, newest_ns=0)
        if items:
            session.head_id = items[-1].id
        await self._store.put_conversation(tag, session, items)
        return on_wire(session)

    async def retrieve(self, caller: Caller, conversation_id: str) -> Conversation:
        return on_wire(await self._store.conversation(caller.owner, conversation_id))

    async def update(self, caller: Caller, conversation_id: str, metadata: dict[str, str]) -> Conversation:
        session = await self._store.conversation(caller.owner, conversation_id)
        session.metadata = metadata
        await self._store.put_metadata(tag_of(conversation_id), metadata)
        return on_wire(session)

    async def delete(self, caller: Caller, conversation_id: str) -> None:
        session = await self._store.conversation(caller.owner, conversation_id)
        tag = tag_of(conversation_id)
        async with self._responses.planning(tag):
            await self._responses.end_session(tag)
            await self._store.delete_session(tag, session)

    async def list(self, caller: Caller, search: ConversationSearch) -> ConversationList:
        found = await self._store.conversations(
            caller.owner,
            limit=search.limit,
            after=search.after,
            newest_first=search.newest_first,
            query=search.query,
        )
        data = [on_wire(session) for session in found.conversations]
        return ConversationList(
            data=data,
            has_more=found.has_more,
            first_id=data[0].id if data else None,
            last_id=data[-1].id if data else None,
        )

    # -- items --------------------------------------------------------------------------------------------------------

    async def add_items(
        self, caller: Caller, conversation_id: str, messages: Sequence[InputMessage], parent_id: str | None
    ) -> ItemList:
        """Add after the item ``parent_id``, at "root", or with None after the newest item."""
        await self._store.conversation(caller.owner, conversation_id)
        tag = tag_of(conversation_id)
        async with self._responses.planning(tag):
            session = await self._store.conversation(caller.owner, conversation_id)
            tree = await self._store.tree(tag)
            items = chain(tag, messages, _parent(session, tree, parent_id), tree.newest_ns)
            session.head_id, session.last_used_at = items[-1].id, time.time()
            await self._store.put_conversation(tag, session, items)
        return item_list(items, has_more=False)

    async def items(self, caller: Caller, conversation_id: str, wanted: Page) -> ItemList:
        tree = await self._tree(caller, conversation_id)
        return item_page(tree.items, wanted)

    async def item(self, caller: Caller, conversation_id: str, item_id: str) -> ItemRecord:
        tree = await self._tree(caller, conversation_id)
        if item_id not in tree:
            raise NotFound("no such item in this conversation", code="item_not_found")
        return tree[item_id]

    async def delete_item(self, caller: Caller, conversation_id: str, item_id: str) -> Conversation:
        """Take an item out of the tree; its children follow its parent. An answer that runs is cancelled first."""
        item = await self.item(caller, conversation_id, item_id)
        if item.status == "in_progress" and item.response_id is not None:
            with suppress(NotFound):
                await self._responses.cancel(caller, item.response_id)
        tag = tag_of(conversation_id)
        async with self._responses.planning(tag):
            session = await self._store.conversation(caller.owner, conversation_id)
            tree = await self._store.tree(tag)
            if item_id in tree:
                parent_id = tree[item_id].parent_id
                moved = tree.remove(item_id)
                check_none_grows(moved, "item_id")
                if session.head_id == item_id:
                    await self._store.put_head(tag, parent_id or "")
                await self._store.put_items(tag, moved, deleted=[item_id])
        return on_wire(session)

    async def _tree(self, caller: Caller, conversation_id: str) -> ItemTree:
        await self._store.conversation(caller.owner, conversation_id)
        return await self._store.tree(tag_of(conversation_id))


def _parent(session: Session, tree: ItemTree, parent_id: str | None) -> str | None:
    if parent_id is None:
        return session.head_id or None
    if parent_id == "root":
        return None
    if parent_id not in tree:
        raise NotFound("no such item in this conversation", param="parent_id", code="item_not_found")
    return parent_id


def on_wire(session: Session) -> Conversation:
    return Conversation(
        id=session.conversation_id,
        created_at=session.created_at,
        metadata=session.metadata,
        last_used_at=int(session.last_used_at),
    )


def item_page(items: Sequence[ItemRecord], wanted: Page) -> ItemList:
    ordered = list(items)[::-1] if wanted.newest_first else list(items)
    chosen, has_more = page(ordered, [item.id for item in ordered], after=wanted.after, limit=wanted.limit)
    return item_list(chosen, has_more=has_more)


def item_list(items: Sequence[ItemRecord], *, has_more: bool) -> ItemList:
    data = [item.on_wire() for item in items]
    return ItemList(
        data=data,
        has_more=has_more,
        first_id=data[0].id if data else None,
        last_id=data[-1].id if data else None,
    )
