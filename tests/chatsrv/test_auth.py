"""Owners: nobody reads, times, stops or alters what is another's, on any transport."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from starlette.routing import Route, WebSocketRoute
from starlette.types import Message, Receive, Scope, Send
from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect

from chatsrv import auth, keyring
from chatsrv.account import Accounts
from chatsrv.app import ROUTES
from chatsrv.auth import Authentication
from chatsrv.new_key import entry
from tests.chatsrv.conftest import RunningServer, ServerThread
from tests.chatsrv.sockets import Socket
from tests.fakes import WatchedEngine

ADA, BOB = "ada-key-0123456789", "bob-key-0123456789"


@pytest.fixture
def guarded(serve: Callable[..., ServerThread], tmp_path: Path) -> Iterator[RunningServer]:
    keys = tmp_path / "keys"
    keys.write_text(entry("ada", "user", ADA) + entry("bob", "admin", BOB))
    with serve(WatchedEngine(), api_keys=str(keys)) as server:
        yield server


def client(server: RunningServer, key: str) -> OpenAI:
    server.clients.append(OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0))
    return server.clients[-1]


def socket(server: RunningServer, key: str) -> Socket:
    return Socket(server, additional_headers={"Authorization": f"Bearer {key}"})


@pytest.mark.parametrize("authorization", [None, "Bearer wrong-key-000000000", f"Basic {ADA}", "Bearer"])
def test_without_a_key_nothing_is_answered(guarded: RunningServer, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    for path in ("/v1/models", "/v1/conversations", "/v1/responses/x"):
        answer = httpx.get(f"{guarded.url}{path}", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert httpx.post(f"{guarded.url}/tokenize", json={"prompt": "x"}, headers=headers).status_code == 401
    with pytest.raises(InvalidStatus) as caught, Socket(guarded, additional_headers=headers):
        pass
    assert caught.value.response.status_code == 401
    assert httpx.get(f"{guarded.url}/healthz").status_code == 200


def test_what_is_anothers_does_not_exist(guarded: RunningServer) -> None:
    ada, bob = client(guarded, ADA), client(guarded, BOB)
    conversation = ada.conversations.create(metadata={"title": "secret"})
    response = ada.responses.create(input="x", conversation=conversation.id)
    (item, _) = ada.conversations.items.list(conversation.id)
    message: Any = [{"role": "user", "content": "x"}]
    for attempt in (
        lambda: bob.responses.retrieve(response.id),
        lambda: list(bob.responses.retrieve(response.id, stream=True)),
        lambda: bob.responses.cancel(response.id),
        lambda: bob.responses.delete(response.id),
        lambda: bob.responses.input_items.list(response.id),
        lambda: bob.responses.create(input="y", previous_response_id=response.id),
        lambda: bob.responses.create(input="y", conversation=conversation.id),
        lambda: bob.conversations.retrieve(conversation.id),
        lambda: bob.conversations.update(conversation.id, metadata={}),
        lambda: bob.conversations.delete(conversation.id),
        lambda: bob.conversations.items.list(conversation.id),
        lambda: bob.conversations.items.create(conversation.id, items=message),
        lambda: bob.conversations.items.retrieve(str(item.id), conversation_id=conversation.id),
        lambda: bob.conversations.items.delete(str(item.id), conversation_id=conversation.id),
    ):
        with pytest.raises(openai.NotFoundError):
            attempt()
    headers = {"Authorization": f"Bearer {BOB}"}
    assert httpx.get(f"{guarded.url}/v1/conversations", headers=headers).json()["data"] == []
    assert ada.conversations.retrieve(conversation.id).metadata == {"title": "secret"}


def test_nobody_stops_steers_or_follows_anothers_running_answer(guarded: RunningServer) -> None:
    guarded.engine.paused = True
    with socket(guarded, ADA) as ada, socket(guarded, BOB) as bob:
        ada.create("x")
        response_id = ada.until("response.in_progress")[0]["response"]["id"]
        bob.send("response.cancel", response_id=response_id)
        assert bob.recv()["error"]["code"] == "response_not_found"
        bob.send("response.resume", response_id=response_id)
        assert bob.recv()["error"]["code"] == "response_not_found"
        bob.send("response.steer", previous_response_id=response_id, input="y")
        assert bob.recv()["error"]["code"] == "response_not_found"
        guarded.engine.paused = False
        assert ada.answer()[-1]["type"] == "response.completed"


def test_owners_do_not_share_the_prefix_cache(guarded: RunningServer) -> None:
    """Otherwise the time to the first token would tell what another has asked."""
    question = "a question that is long enough for several blocks"
    cached = []
    for key in (ADA, ADA, BOB):
        usage = client(guarded, key).responses.create(input=question).usage
        assert usage is not None
        cached.append(usage.input_tokens_details.cached_tokens > 0)
    assert cached == [False, True, False]
    assert len({submission.salt for submission in guarded.engine.submissions}) == 2


OPEN = {
    ("POST", "/v1/login"),
    ("DELETE", "/v1/login"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("GET", "/openapi.json"),
}
ADMINS = {("WebSocket", "/v1/engine/live"), ("GET", "/metrics")}


def _routes() -> list[tuple[str, str]]:
    """Every route, as (method, path). A new one that nobody guards fails the tests below."""
    found = []
    for route in ROUTES:
        assert isinstance(route, Route | WebSocketRoute), f"{route} is of a kind that these tests do not know"
        methods = (route.methods or set()) - {"HEAD"} if isinstance(route, Route) else {"WebSocket"}
        found += [(method, route.path) for method in methods]
    return sorted(found)


def _status(server: RunningServer, method: str, path: str, key: str | None) -> int:
    url = server.url + re.sub(r"\{[^}]*\}", "x", path)
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    if method != "WebSocket":
        return httpx.request(method, url, headers=headers).status_code
    try:
        with connect(url.replace("http", "ws", 1), additional_headers=headers):
            return 101
    except InvalidStatus as error:
        return error.response.status_code


def test_every_route_is_guarded_but_those_that_must_be_open(guarded: RunningServer) -> None:
    routes = _routes()
    assert set(routes) >= OPEN | ADMINS
    for method, path in routes:
        without, as_user, as_admin = (_status(guarded, method, path, key) for key in (None, ADA, BOB))
        is_open, for_admins = (method, path) in OPEN, (method, path) in ADMINS
        assert (without == 401) is not is_open, f"{method} {path} answers {without} to somebody without a key"
        assert (as_user == 403) is for_admins, f"{method} {path} answers {as_user} to a user"
        assert as_admin not in (401, 403), f"{method} {path} answers {as_admin} to an admin"


def test_a_key_that_is_taken_away_ends_its_sockets_and_opens_nothing_more(
    guarded: RunningServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keyring, "LOOK_INTERVAL_S", 0.0)
    with socket(guarded, ADA) as ada, socket(guarded, BOB) as bob:
        assert ada.ask("x")["status"] == "completed"
        guarded.engine.paused = True
        ada.create("y")
        ada.until("response.in_progress")
        Path(guarded.settings.api_keys).write_text(entry("bob", "admin", BOB))
        guarded.engine.paused = False  # what goes out is checked too
        with pytest.raises(ConnectionClosedError) as caught:
            ada.answer()
        assert caught.value.rcvd is not None
        assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (1008, "the API key is no longer valid")
        assert _status(guarded, "GET", "/v1/models", ADA) == 401
        assert bob.ask("x")["status"] == "completed"
    assert "Traceback" not in caplog.text


def test_an_idle_socket_ends_with_its_key(guarded: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "LOOK_INTERVAL_S", 0.0)
    monkeypatch.setattr(auth, "IDLE_CHECK_S", 0.05)
    with socket(guarded, ADA) as ada, socket(guarded, BOB) as bob:
        Path(guarded.settings.api_keys).write_text(entry("bob", "admin", BOB))
        with pytest.raises(ConnectionClosedError, match="1008"):
            ada.recv()
        assert bob.ask("x")["status"] == "completed"


def test_a_frame_under_a_key_that_was_taken_away_does_nothing(
    guarded: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring, "LOOK_INTERVAL_S", 0.0)
    with socket(guarded, ADA) as ada:
        Path(guarded.settings.api_keys).write_text(entry("bob", "admin", BOB))
        ada.create("x")
        with pytest.raises(ConnectionClosedError, match="1008"):
            ada.recv()
    assert guarded.engine.submissions == []


def test_an_admin_who_becomes_a_user_sees_no_more_of_the_engine(
    serve: Callable[..., ServerThread], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring, "LOOK_INTERVAL_S", 0.0)
    keys = tmp_path / "keys"
    keys.write_text(entry("bob", "admin", BOB))
    with serve(WatchedEngine(), api_keys=str(keys)) as server:
        address = server.url.replace("http", "ws", 1) + "/v1/engine/live"
        with connect(address, additional_headers={"Authorization": f"Bearer {BOB}"}) as feed:
            feed.recv(timeout=10)
            keys.write_text(entry("bob", "user", BOB))
            with pytest.raises(ConnectionClosedError, match="1008"):
                list(feed)


def test_without_keys_the_inside_is_shown_on_this_machine_only() -> None:
    """A client elsewhere, as ASGI tells it."""

    async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
        raise AssertionError("it was let in")

    answers: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        answers.append(message)

    app = SimpleNamespace(
        state=SimpleNamespace(services=SimpleNamespace(keyring=keyring.Keyring(None), accounts=Accounts(1000)))
    )
    scope = {"type": "http", "headers": [], "client": ("10.0.0.7", 5), "app": app}
    asyncio.run(Authentication(endpoint, "admin")(scope, receive, send))
    assert answers[0]["status"] == 403
