"""The application: its routes, and its life from the first connection to the store to the last write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute, Route, WebSocketRoute

from chatsrv import live
from chatsrv.auth import guarded
from chatsrv.embedded import EmbeddedStore
from chatsrv.endpoints import completions, conversations, login, models, responses
from chatsrv.errors import ApiError
from chatsrv.guard import Guard
from chatsrv.health import healthz, readyz
from chatsrv.http import error_response
from chatsrv.keyring import Keyring
from chatsrv.page import Page
from chatsrv.seam import EngineSeam
from chatsrv.services import Services
from chatsrv.settings import ServerSettings
from chatsrv.store import Store, connect
from engine import EngineError

EngineFactory = Callable[[], AbstractAsyncContextManager[EngineSeam]]

_RESPONSE = "/v1/responses/{response_id}"
_CONVERSATION = "/v1/conversations/{conversation_id}"

_OPEN: list[BaseRoute] = [
    Route("/v1/login", login.login, methods=["POST"]),
    Route("/v1/login", login.logout, methods=["DELETE"]),
    Route("/healthz", healthz, methods=["GET"]),
    Route("/readyz", readyz, methods=["GET"]),
    Route("/{path:path}", Page(), methods=["GET"]),
]

_FOR_ADMINS: list[Route | WebSocketRoute] = [WebSocketRoute("/v1/engine/live", live.connect)]

_FOR_USERS: list[Route | WebSocketRoute] = [
    WebSocketRoute("/v1/responses", responses.connect),
    Route("/v1/responses", responses.create, methods=["POST"]),
    Route(_RESPONSE, responses.retrieve, methods=["GET"]),
    Route(_RESPONSE, responses.delete, methods=["DELETE"]),
    Route(f"{_RESPONSE}/cancel", responses.cancel, methods=["POST"]),
    Route(f"{_RESPONSE}/input_items", responses.input_items, methods=["GET"]),
    Route("/v1/conversations", conversations.list_all, methods=["GET"]),
    Route("/v1/conversations", conversations.create, methods=["POST"]),
    Route(_CONVERSATION, conversations.retrieve, methods=["GET"]),
    Route(_CONVERSATION, conversations.update, methods=["POST"]),
    Route(_CONVERSATION, conversations.delete, methods=["DELETE"]),
    Route(f"{_CONVERSATION}/items", conversations.list_items, methods=["GET"]),
    Route(f"{_CONVERSATION}/items", conversations.create_items, methods=["POST"]),
    Route(f"{_CONVERSATION}/items/{{item_id}}", conversations.retrieve_item, methods=["GET"]),
    Route(f"{_CONVERSATION}/items/{{item_id}}", conversations.delete_item, methods=["DELETE"]),
    Route("/v1/chat/completions", completions.chat, methods=["POST"]),
    Route("/v1/completions", completions.legacy, methods=["POST"]),
    Route("/v1/models", models.list_all, methods=["GET"]),
    Route("/v1/models/{model:path}", models.retrieve, methods=["GET"]),
    Route("/tokenize", models.tokenize, methods=["POST"]),
    Route("/detokenize", models.detokenize, methods=["POST"]),
]

ROUTES: list[BaseRoute] = [*guarded("user", _FOR_USERS), *guarded("admin", _FOR_ADMINS), *_OPEN]

_HANDLERS = dict.fromkeys((ApiError, EngineError, HTTPException, Exception), error_response)


def create_app(settings: ServerSettings, make_engine: EngineFactory) -> Starlette:
    """The whole server as one ASGI application.

    Args:
        make_engine: a context manager that loads the engine and closes it at the end.
    """

    keyring = Keyring(Path(settings.api_keys).expanduser() if settings.api_keys else None)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            embedded = EmbeddedStore(settings.data_dir)
            url = settings.redis_url or await stack.enter_async_context(embedded)
            store = Store(connect(url), session_ttl_s=settings.session_ttl_s, events_ttl_s=settings.events_ttl_s)
            stack.push_async_callback(store.close)
            await store.start()
            engine = await stack.enter_async_context(make_engine())
            app.state.services = Services.make(settings, engine, store, keyring)
            stack.push_async_callback(app.state.services.responses.close)
            app.state.services.responses.start()
            yield

    hosts = [settings.host, *settings.allowed_hosts.replace(" ", "").split(",")]
    middleware = [Middleware(Guard, allowed_hosts=hosts)]
    return Starlette(routes=ROUTES, lifespan=lifespan, exception_handlers=_HANDLERS, middleware=middleware)
