"""What the endpoints work with, made once and closed in order."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from chatsrv.conversations import Conversations
from chatsrv.responses import Responses
from chatsrv.seam import EngineSeam
from chatsrv.settings import ServerSettings
from chatsrv.store import Store, connect


@dataclass(frozen=True, slots=True)
class Services:
    settings: ServerSettings
    engine: EngineSeam
    store: Store
    responses: Responses
    conversations: Conversations

    @classmethod
    async def start(cls, settings: ServerSettings, engine: EngineSeam, redis_url: str) -> Services:
        """Connect to the store and take up work."""
        process_id = secrets.token_urlsafe(9)
        store = Store(
            connect(redis_url),
            session_ttl_s=settings.session_ttl_s,
            events_ttl_s=settings.events_ttl_s,
            process_id=process_id,
        )
        await store.start()
        grace_s = settings.disconnect_grace_s
        responses = Responses(engine, store, disconnect_grace_s=grace_s, process_id=process_id)
        responses.start()
        return cls(settings, engine, store, responses, Conversations(store, responses))

    async def close(self) -> None:
        await self.responses.close()
        await self.store.close()


def services(connection: HTTPConnection) -> Services:
    """The services of the app that got this request."""
    found: Services = connection.app.state.services
    return found
