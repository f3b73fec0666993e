"""``/v1/responses``: create, follow, retrieve, cancel, delete."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

from starlette.requests import Request
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from chatsrv.auth import caller
from chatsrv.conversations import item_page
from chatsrv.errors import ApiError, Restarting
from chatsrv.failures import refusal
from chatsrv.generation import Generation
from chatsrv.http import json_response, read_body, read_query, unless_disconnected
from chatsrv.ids import tag_of
from chatsrv.responses import Responses, snapshot
from chatsrv.services import services
from chatsrv.sse import EventStream, response_frames
from chatsrv.websocket import Connection
from chatsrv.wire.create import CreateResponse
from chatsrv.wire.events import Entry
from chatsrv.wire.query import Page, Retrieve
from chatsrv.wire.response import DeletedResponse


async def connect(socket: WebSocket) -> None:
    """``GET /v1/responses`` with an upgrade."""
    asking, found = caller(socket), services(socket)
    if found.responses.drain.is_begun:
        await refusal(Restarting())(socket.scope, socket.receive, socket.send)
        return
    await Connection(socket, asking, found.responses, found.accounts.of(asking)).serve()


async def create(request: Request) -> ASGIApp:
    body = await read_body(request, CreateResponse)
    responses = services(request).responses
    generation = await responses.create(caller(request), body)
    if body.stream:
        return EventStream(response_frames(responses.follow_running(generation)))
    if body.background:
        return json_response(snapshot(generation.turn))
    generation.is_resumable = False
    await unless_disconnected(request, _to_its_end(responses, generation))
    if generation.is_left:  # its client will ask again, and is not to find the question twice
        if generation.is_stored:
            with suppress(ApiError):  # where it cannot be undone, it must be asked again all the same
                await responses.delete(caller(request), generation.id)
        raise Restarting
    return json_response(generation.turn.response)


async def retrieve(request: Request) -> ASGIApp:
    responses = services(request).responses
    response_id = request.path_params["response_id"]
    query = read_query(request, Retrieve)
    if not query.stream:
        return json_response(await responses.retrieve(caller(request), response_id))
    batches = await _begun(responses.follow(caller(request), response_id, query.starting_after))
    return EventStream(response_frames(batches))


async def cancel(request: Request) -> ASGIApp:
    return json_response(await services(request).responses.cancel(caller(request), request.path_params["response_id"]))


async def delete(request: Request) -> ASGIApp:
    response_id = request.path_params["response_id"]
    await services(request).responses.delete(caller(request), response_id)
    return json_response(DeletedResponse(id=response_id))


async def input_items(request: Request) -> ASGIApp:
    page = read_query(request, Page)
    store = services(request).store
    record = await store.response(caller(request).owner, request.path_params["response_id"])
    tree = await store.tree(tag_of(record.response.id))
    items = [tree[item_id] for item_id in record.input_item_ids if item_id in tree]
    return json_response(item_page(items, page))


async def _to_its_end(responses: Responses, generation: Generation) -> None:
    async with aclosing(responses.follow_running(generation)) as batches:
        async for _ in batches:
            pass


async def _begun(batches: AsyncGenerator[list[Entry], None]) -> AsyncGenerator[list[Entry], None]:
    """The same batches, the first of which is there: what is wrong is raised now, while there is a status to tell."""
    first = await anext(batches, None)

    async def go_on() -> AsyncGenerator[list[Entry], None]:
        async with aclosing(batches):
            if first is not None:
                yield first
            async for batch in batches:
                yield batch

    return go_on()
