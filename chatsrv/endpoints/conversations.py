"""``/v1/conversations`` and the items in them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp

from chatsrv.auth import caller
from chatsrv.conversations import Conversations
from chatsrv.http import json_response, read_body, read_query
from chatsrv.services import services
from chatsrv.wire.conversations import CreateConversation, CreateItems, DeletedConversation, UpdateConversation
from chatsrv.wire.query import ConversationSearch, Page


async def list_all(request: Request) -> ASGIApp:
    search = read_query(request, ConversationSearch)
    return json_response(await _conversations(request).list(caller(request), search))


async def create(request: Request) -> ASGIApp:
    body = await read_body(request, CreateConversation, CreateConversation())
    items, metadata = body.items or [], body.metadata or {}
    return json_response(await _conversations(request).create(caller(request), items, metadata))


async def retrieve(request: Request) -> ASGIApp:
    return json_response(await _conversations(request).retrieve(caller(request), _id(request)))


async def update(request: Request) -> ASGIApp:
    body = await read_body(request, UpdateConversation)
    return json_response(await _conversations(request).update(caller(request), _id(request), body.metadata or {}))


async def delete(request: Request) -> ASGIApp:
    await _conversations(request).delete(caller(request), _id(request))
    return json_response(DeletedConversation(id=_id(request)))


async def list_items(request: Request) -> ASGIApp:
    page = read_query(request, Page)
    return json_response(await _conversations(request).items(caller(request), _id(request), page))


async def create_items(request: Request) -> ASGIApp:
    body = await read_body(request, CreateItems)
    added = await _conversations(request).add_items(caller(request), _id(request), body.items, body.parent_id)
    return json_response(added)


async def retrieve_item(request: Request) -> ASGIApp:
    item_id = request.path_params["item_id"]
    item = await _conversations(request).item(caller(request), _id(request), item_id)
    return json_response(item.on_wire())


async def delete_item(request: Request) -> ASGIApp:
    item_id = request.path_params["item_id"]
    return json_response(await _conversations(request).delete_item(caller(request), _id(request), item_id))


def _conversations(request: Request) -> Conversations:
    return services(request).conversations


def _id(request: Request) -> str:
    conversation_id: str = request.path_params["conversation_id"]
    return conversation_id
