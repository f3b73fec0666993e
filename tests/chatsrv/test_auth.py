"""Owners: nobody reads, times, stops or alters what is another's, on any transport."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI
from websockets.exceptions import InvalidStatus

from chatsrv.auth import LOCAL, Caller, Keyring
from chatsrv.settings import SettingError
from tests.chatsrv.conftest import RunningServer, ServerThread
from tests.chatsrv.sockets import Socket
from tests.fakes import FakeEngine

ADA, BOB = "ada-key-0123456789", "bob-key-0123456789"


@pytest.fixture
def guarded(serve: Callable[..., ServerThread], tmp_path: Path) -> Iterator[RunningServer]:
    keys = tmp_path / "keys"
    keys.write_text(f"# owners\nada user {ADA}\nbob admin {BOB}  # may look at the engine room\n\n")
    with serve(FakeEngine(), api_keys=str(keys)) as server:
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


@pytest.mark.parametrize("line", ["ada user short", "ada root " + "k" * 16, "ada user", "a{}b user " + "k" * 16])
def test_a_bad_line_is_named_without_its_key(tmp_path: Path, line: str) -> None:
    path = tmp_path / "keys"
    path.write_text(f"bob user {BOB}\n{line}\n")
    with pytest.raises(SettingError, match="line 2") as caught:
        Keyring.read(path)
    assert "kkkk" not in str(caught.value)


def test_each_owner_has_a_salt_of_its_own_that_never_changes() -> None:
    assert Caller("a").salt == Caller("a").salt
    assert len({Caller(owner).salt for owner in ("a", "b", "", "local")}) == 4


def test_the_salt_does_not_tell_the_owner() -> None:
    assert LOCAL.owner.encode() not in LOCAL.salt
    assert len(LOCAL.salt) == 32
