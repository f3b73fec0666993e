"""``/v1/conversations`` and the items in them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp

from chatsrv.auth import LOCAL
from chatsrv.errors import InvalidField
from chatsrv.http import json_response, page_query, read_body
from chatsrv.services import services
from chatsrv.wire.conversations import CreateConversation, CreateItems, DeletedConversation, UpdateConversation

MAX_QUERY_CHARS = 200


async def list_all(request: Request) -> ASGIApp:
    query = request.query_params.get("query", "")
    if len(query) > MAX_QUERY_CHARS:
        raise InvalidField("query", f"query: may have at most {MAX_QUERY_CHARS} characters")
    return json_response(await services(request).conversations.list(LOCAL, query=query, **page_query(request)))


async def create(request: Request) -> ASGIApp:
    body = await read_body(request, CreateConversation, CreateConversation())
    return json_response(await services(request).conversations.create(LOCAL, body.items or [], body.metadata or {}))


async def retrieve(request: Request) -> ASGIApp:
    return json_response(await services(request).conversations.retrieve(LOCAL, request.path_params["conversation_id"]))


async def update(request: Request) -> ASGIApp:
    body = await read_body(request, UpdateConversation)
    conversation_id = request.path_params["conversation_id"]
    return json_response(await services(request).conversations.update(LOCAL, conversation_id, body.metadata or {}))


async def delete(request: Request) -> ASGIApp:
    conversation_id = request.path_params["conversation_id"]
    await services(request).conversations.delete(LOCAL, conversation_id)
    return json_response(DeletedConversation(id=conversation_id))


async def list_items(request: Request) -> ASGIApp:
    page = page_query(request)
    conversation_id = request.path_params["conversation_id"]
    return json_response(await services(request).conversations.items(LOCAL, conversation_id, **page))


async def create_items(request: Request) -> ASGIApp:
    body = await read_body(request, CreateItems)
    conversation_id = request.path_params["conversation_id"]
    return json_response(await services(request).conversations.add_items(LOCAL, conversation_id, body.items))


async def retrieve_item(request: Request) -> ASGIApp:
    path = request.path_params
    item = await services(request).conversations.item(LOCAL, path["conversation_id"], path["item_id"])
    return json_response(item.on_wire())


async def delete_item(request: Request) -> ASGIApp:
    path = request.path_params
    conversations = services(request).conversations
    return json_response(await conversations.delete_item(LOCAL, path["conversation_id"], path["item_id"]))
