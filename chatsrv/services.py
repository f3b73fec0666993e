"""What the endpoints work with, made once for the application."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import HTTPConnection

from chatsrv.account import Accounts
from chatsrv.conversations import Conversations
from chatsrv.keyring import Keyring
from chatsrv.responses import Responses
from chatsrv.seam import EngineSeam
from chatsrv.settings import ServerSettings
from chatsrv.store import Store


@dataclass(frozen=True, slots=True)
class Services:
    settings: ServerSettings
    engine: EngineSeam
    store: Store
    responses: Responses
    conversations: Conversations
    keyring: Keyring
    accounts: Accounts

    @classmethod
    def make(cls, settings: ServerSettings, engine: EngineSeam, store: Store, keyring: Keyring) -> Services:
        accounts = Accounts(settings.max_message_bytes)
        responses = Responses(engine, store, accounts, disconnect_grace_s=settings.disconnect_grace_s)
        return cls(settings, engine, store, responses, Conversations(store, responses), keyring, accounts)


def services(connection: HTTPConnection) -> Services:
    """The services of the app that got this request."""
    found: Services = connection.app.state.services
    return found
