"""The table of everything that is answered over HTTP. Routes and the OpenAPI document both come from it."""

from __future__ import annotations

from functools import cache
from typing import Any

from starlette.requests import Request
from starlette.types import ASGIApp

from chatsrv import health
from chatsrv.endpoints import completions, conversations, login, models, responses
from chatsrv.errors import ErrorAnswer, InvalidField, NotFound, Unauthorized
from chatsrv.http import json_response
from chatsrv.openapi import document
from chatsrv.operation import Operation
from chatsrv.services import services
from chatsrv.wire import query
from chatsrv.wire.completion_answers import DONE, ChatChunk, ChatCompletion, TextChunk, TextCompletion
from chatsrv.wire.completions import ChatRequest, CompletionRequest
from chatsrv.wire.conversations import (
    Conversation,
    ConversationList,
    CreateConversation,
    CreateItems,
    DeletedConversation,
    UpdateConversation,
)
from chatsrv.wire.create import CreateResponse
from chatsrv.wire.events import StreamedEvent
from chatsrv.wire.items import Item, ItemList
from chatsrv.wire.models import Detokenize, Detokenized, Model, ModelList, Tokenize, Tokens
from chatsrv.wire.response import DeletedResponse, Response

_RESPONSE = "/v1/responses/{response_id}"
_CONVERSATION = "/v1/conversations/{conversation_id}"
_ITEMS = f"{_CONVERSATION}/items"
_ITEM = f"{_ITEMS}/{{item_id}}"


@cache
def _document(with_keys: bool) -> dict[str, Any]:
    return document(OPERATIONS, with_keys=with_keys)


async def openapi(request: Request) -> ASGIApp:
    return json_response(_document(not services(request).keyring.is_open))


OPERATIONS = [
    Operation(
        "POST",
        "/v1/responses",
        responses.create,
        "Create a response",
        Response,
        body=CreateResponse,
        events=(StreamedEvent,),
        raises=(NotFound,),
    ),
    Operation(
        "GET",
        _RESPONSE,
        responses.retrieve,
        "Retrieve a response, or follow its events",
        Response,
        query=query.Retrieve,
        events=(StreamedEvent,),
    ),
    Operation("DELETE", _RESPONSE, responses.delete, "Delete a response with its items", DeletedResponse),
    Operation("POST", f"{_RESPONSE}/cancel", responses.cancel, "Cancel a response", Response),
    Operation(
        "GET",
        f"{_RESPONSE}/input_items",
        responses.input_items,
        "List what a response was asked",
        ItemList,
        query=query.Page,
    ),
    Operation(
        "GET",
        "/v1/conversations",
        conversations.list_all,
        "List conversations, newest use first",
        ConversationList,
        query=query.ConversationSearch,
        raises=(NotFound,),
    ),
    Operation(
        "POST",
        "/v1/conversations",
        conversations.create,
        "Create a conversation",
        Conversation,
        body=CreateConversation,
        body_is_optional=True,
    ),
    Operation("GET", _CONVERSATION, conversations.retrieve, "Retrieve a conversation", Conversation),
    Operation(
        "POST",
        _CONVERSATION,
        conversations.update,
        "Replace a conversation's metadata",
        Conversation,
        body=UpdateConversation,
    ),
    Operation("DELETE", _CONVERSATION, conversations.delete, "Delete a conversation", DeletedConversation),
    Operation("GET", _ITEMS, conversations.list_items, "List a conversation's items", ItemList, query=query.Page),
    Operation("POST", _ITEMS, conversations.create_items, "Add items after the newest", ItemList, body=CreateItems),
    Operation("GET", _ITEM, conversations.retrieve_item, "Retrieve an item", Item),
    Operation("DELETE", _ITEM, conversations.delete_item, "Delete an item", Conversation, raises=(InvalidField,)),
    Operation(
        "POST",
        "/v1/chat/completions",
        completions.chat,
        "Answer a chat; nothing is kept",
        ChatCompletion,
        body=ChatRequest,
        events=(ChatChunk, ErrorAnswer, DONE),
        raises=(NotFound,),
    ),
    Operation(
        "POST",
        "/v1/completions",
        completions.legacy,
        "Continue texts; nothing is kept",
        TextCompletion,
        body=CompletionRequest,
        events=(TextChunk, ErrorAnswer, DONE),
        raises=(NotFound,),
    ),
    Operation("GET", "/v1/models", models.list_all, "List the served model", ModelList),
    Operation("GET", "/v1/models/{model:path}", models.retrieve, "Retrieve the served model", Model),
    Operation("POST", "/tokenize", models.tokenize, "Text to token ids", Tokens, body=Tokenize, raises=(NotFound,)),
    Operation(
        "POST", "/detokenize", models.detokenize, "Token ids to text", Detokenized, body=Detokenize, raises=(NotFound,)
    ),
    Operation(
        "POST",
        "/v1/login",
        login.login,
        "Trade a key for a cookie",
        login.Access,
        body=login.Login,
        raises=(Unauthorized,),
        role=None,
    ),
    Operation("DELETE", "/v1/login", login.logout, "Give the cookie back", login.Access, role=None),
    Operation(
        "GET",
        "/healthz",
        health.healthz,
        "Whether the engine advances",
        health.Health,
        unwell=health.Health,
        role=None,
    ),
    Operation(
        "GET",
        "/readyz",
        health.readyz,
        "Whether requests are welcome",
        health.Readiness,
        unwell=health.Readiness,
        role=None,
    ),
    Operation("GET", "/openapi.json", openapi, "This document", dict[str, Any], role=None),
]
