"""The application: its routes, and its life from the first connection to the store to the last write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Route, WebSocketRoute

from chatsrv import live
from chatsrv.auth import guarded
from chatsrv.embedded import EmbeddedStore
from chatsrv.endpoints import responses
from chatsrv.errors import ApiError
from chatsrv.guard import Guard
from chatsrv.http import error_response, no_response
from chatsrv.keyring import Keyring
from chatsrv.metrics import metrics
from chatsrv.operation import routes
from chatsrv.operations import OPERATIONS
from chatsrv.page import Page
from chatsrv.seam import EngineSeam
from chatsrv.services import Services
from chatsrv.settings import ServerSettings
from chatsrv.store import Store, connect
from engine import EngineError

EngineFactory = Callable[[], AbstractAsyncContextManager[EngineSeam]]

ROUTES: list[BaseRoute] = [
    *guarded("user", [WebSocketRoute("/v1/responses", responses.connect)]),
    *guarded("admin", [WebSocketRoute("/v1/engine/live", live.connect), Route("/metrics", metrics, methods=["GET"])]),
    *routes(OPERATIONS),
]

_HANDLERS = {
    **dict.fromkeys((ApiError, EngineError, HTTPException, Exception), error_response),
    ClientDisconnect: no_response,
}


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
    app = Starlette(routes=ROUTES, lifespan=lifespan, exception_handlers=_HANDLERS, middleware=middleware)
    app.router.redirect_slashes = False
    app.router.default = GZipMiddleware(Page(), minimum_size=1024, compresslevel=6)
    return app
