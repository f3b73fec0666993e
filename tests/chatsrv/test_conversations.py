"""Conversations: trees of items, with branches, siblings and no lost update."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest

from chatsrv.conversations import Conversations
from chatsrv.keyring import Caller
from chatsrv.records import ItemRecord
from engine import ChatMessage
from tests.chatsrv.conftest import RunningServer, ServerThread, wait_until
from tests.chatsrv.sockets import Socket, output_text
from tests.fakes import FakeEngine


def get(server: RunningServer, path: str) -> Any:
    return httpx.get(f"{server.url}{path}").json()


def tree(server: RunningServer, conversation_id: str) -> dict[str | None, list[tuple[str, str]]]:
    """(role, text) of the children of each item's text."""
    items = get(server, f"/v1/conversations/{conversation_id}/items?order=asc&limit=100")["data"]
    texts = {item["id"]: item["content"][0]["text"] for item in items}
    children: dict[str | None, list[tuple[str, str]]] = {}
    for item in items:
        parent = texts.get(item["parent_id"])
        children.setdefault(parent, []).append((item["role"], texts[item["id"]]))
    return children


def test_create_read_update_delete(server: RunningServer) -> None:
    client = server.client()
    conversation = client.conversations.create(metadata={"title": "First"}, items=[{"role": "user", "content": "hi"}])
    assert client.conversations.retrieve(conversation.id).metadata == {"title": "First"}
    assert client.conversations.update(conversation.id, metadata={"title": "Second"}).metadata == {"title": "Second"}
    (item,) = client.conversations.items.list(conversation.id)
    assert client.conversations.items.retrieve(item.id, conversation_id=conversation.id).id == item.id  # type: ignore[arg-type]
    assert client.conversations.delete(conversation.id).deleted
    for call in (client.conversations.retrieve, client.conversations.delete, client.conversations.items.list):
        with pytest.raises(openai.NotFoundError):
            call(conversation.id)  # type: ignore[operator]


def test_turns_continue_the_newest(server: RunningServer) -> None:
    client = server.client()
    conversation = client.conversations.create()
    for text in ("one", "two"):
        response = client.responses.create(input=text, conversation=conversation.id)
        assert response.conversation is not None
        assert response.conversation.id == conversation.id
    assert server.engine.submissions[-1].text == "user\noneassistant\nYou said: oneuser\ntwoassistant\n"
    items = list(client.conversations.items.list(conversation.id, order="asc"))
    assert [item.role for item in items] == ["user", "assistant"] * 2  # type: ignore[union-attr]


def test_added_items_are_part_of_the_history(server: RunningServer) -> None:
    client = server.client()
    conversation = client.conversations.create(items=[{"role": "system", "content": "s"}])
    client.conversations.items.create(conversation.id, items=[{"role": "user", "content": "u"}])
    client.responses.create(input="v", conversation=conversation.id)
    assert server.engine.submissions[-1].text == "system\nsuser\nuuser\nvassistant\n"


def test_items_can_be_added_as_branches(server: RunningServer) -> None:
    client = server.client()
    conversation = client.conversations.create(items=[{"role": "user", "content": "one"}]).id
    (root,) = get(server, f"/v1/conversations/{conversation}/items")["data"]

    def add(text: str, parent_id: str) -> httpx.Response:
        body = {"items": [{"role": "assistant", "content": text}], "parent_id": parent_id}
        return httpx.post(f"{server.url}/v1/conversations/{conversation}/items", json=body)

    assert [add(*item).status_code for item in (("a", root["id"]), ("b", root["id"]), ("c", "root"))] == [200] * 3
    assert tree(server, conversation) == {
        None: [("user", "one"), ("assistant", "c")],
        "one": [("assistant", "a"), ("assistant", "b")],
    }
    refused = add("d", "msg_" + "0" * 32)
    assert (refused.status_code, refused.json()["error"]["param"]) == (404, "parent_id")


def test_edit_and_regenerate_make_siblings(server: RunningServer) -> None:
    client = server.client()
    conversation = client.conversations.create().id
    for answer in ("A1", "A2", "A1 again", "A1 edited"):
        server.engine.enqueue(answer)
    with Socket(server) as socket:
        first = socket.ask("U1", conversation=conversation)
        user_item = first["output"][0]["parent_id"]
        socket.ask("U2", conversation=conversation)
        socket.send("response.create", conversation=conversation, parent_id=user_item)
        again = socket.answer()[-1]["response"]
        edited = socket.ask("U1 edited", conversation=conversation, parent_id="root")
        assert server.engine.submissions[2].text == "user\nU1assistant\n"
        assert server.engine.submissions[3].text == "user\nU1 editedassistant\n"
        server.engine.enqueue("on the old branch")
        socket.ask("U3", conversation=conversation, previous_response_id=first["id"])
    assert output_text(again) == "A1 again"
    assert output_text(edited) == "A1 edited"
    assert tree(server, conversation) == {
        None: [("user", "U1"), ("user", "U1 edited")],
        "U1": [("assistant", "A1"), ("assistant", "A1 again")],
        "A1": [("user", "U2"), ("user", "U3")],
        "U2": [("assistant", "A2")],
        "U1 edited": [("assistant", "A1 edited")],
        "U3": [("assistant", "on the old branch")],
    }


def test_items_link_to_their_response_and_tell_their_state(server: RunningServer) -> None:
    server.engine.paused = True
    conversation = server.client().conversations.create().id
    with Socket(server) as socket:
        socket.create("hi", conversation=conversation)
        response_id = socket.until("response.in_progress")[0]["response"]["id"]
        running = get(server, f"/v1/conversations/{conversation}/items")["data"]
        server.engine.paused = False
        socket.answer()
    done = get(server, f"/v1/conversations/{conversation}/items")["data"]
    assert [(item["role"], item["status"]) for item in running] == [("assistant", "in_progress"), ("user", "completed")]
    assert [item["status"] for item in done] == ["completed", "completed"]
    assert {item["response_id"] for item in running + done} == {response_id}


def test_two_tabs_at_once_lose_nothing(server: RunningServer) -> None:
    """The second tab's turn waits for the first tab's answer, and continues it."""
    conversation = server.client().conversations.create().id
    server.engine.delay_s = 0.002
    with Socket(server) as one, Socket(server) as two:
        one.create("from one", conversation=conversation)
        two.create("from two", conversation=conversation)
        one.answer()
        two.answer()
    items = get(server, f"/v1/conversations/{conversation}/items?order=asc")["data"]
    assert [item["role"] for item in items] == ["user", "assistant"] * 2
    assert [item["parent_id"] for item in items] == [None, *(item["id"] for item in items[:-1])]


def test_stop_and_send_in_the_same_instant(server: RunningServer) -> None:
    """History is what was told, however the stop and the next turn race with the tokens."""
    server.engine.delay_s = 0.001
    for _ in range(15):
        conversation = server.client().conversations.create().id
        server.engine.enqueue("0123456789" * 50)
        with Socket(server) as socket:
            socket.create("count", conversation=conversation, stream_id="a")
            events = [socket.recv()]
            while sum(event["type"].endswith("text.delta") for event in events) < 3:
                events.append(socket.recv())
            socket.send("response.cancel", response_id=events[0]["response"]["id"])
            socket.create("What did you just say?", conversation=conversation, stream_id="b")
            while not (events[-1]["type"] == "response.completed" and events[-1].get("stream_id") == "b"):
                events.append(socket.recv())
        told = "".join(
            event["delta"] for event in events if "text.delta" in event["type"] and event["stream_id"] == "a"
        )
        prompt = server.engine.submissions[-1].text
        assert prompt == f"user\ncountassistant\n{told}user\nWhat did you just say?assistant\n"
        items = get(server, f"/v1/conversations/{conversation}/items?order=asc")["data"]
        assert (items[1]["content"][0]["text"], items[1]["status"]) == (told, "incomplete")


def test_deleting_while_it_answers_brings_nothing_back(server: RunningServer) -> None:
    server.engine.paused = True
    client = server.client()
    conversation = client.conversations.create().id
    with Socket(server) as socket:
        socket.create("hi", conversation=conversation)
        response_id = socket.until("response.in_progress")[0]["response"]["id"]
        client.conversations.delete(conversation)
        assert socket.answer()[-1]["type"] == "response.cancelled"
    assert server.engine.running == 0
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(conversation)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response_id)
    assert conversation not in [c["id"] for c in get(server, "/v1/conversations?limit=100")["data"]]


def test_deleting_an_item_closes_the_gap(server: RunningServer) -> None:
    client = server.client()
    conversation = client.conversations.create().id
    for text in ("one", "two"):
        client.responses.create(input=text, conversation=conversation)
    items = list(client.conversations.items.list(conversation, order="asc"))
    client.conversations.items.delete(items[1].id, conversation_id=conversation)  # type: ignore[arg-type]
    client.responses.create(input="three", conversation=conversation)
    expected = "user\noneuser\ntwoassistant\nYou said: twouser\nthreeassistant\n"
    assert server.engine.submissions[-1].text == expected


def test_the_newest_item_is_deleted_while_the_one_before_it_is(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = server.client()
    conversation = client.conversations.create().id
    client.responses.create(input="one", conversation=conversation)
    client.responses.create(input="two", conversation=conversation)
    *_, question, answer = (str(item.id) for item in client.conversations.items.list(conversation, order="asc"))
    find = Conversations.item

    async def find_and_wait(of: Conversations, caller: Caller, conversation_id: str, item_id: str) -> ItemRecord:
        found = await find(of, caller, conversation_id, item_id)
        if item_id == answer:
            await of.delete_item(caller, conversation_id, question)
        return found

    monkeypatch.setattr(Conversations, "item", find_and_wait)
    client.conversations.items.delete(answer, conversation_id=conversation)
    client.responses.create(input="three", conversation=conversation)
    assert server.engine.submissions[-1].text == "user\noneassistant\nYou said: oneuser\nthreeassistant\n"


def test_deleting_an_answer_that_is_written_ends_it_first(server: RunningServer) -> None:
    server.engine.paused = True
    client = server.client()
    conversation = client.conversations.create().id
    with Socket(server) as socket:
        socket.create("one", conversation=conversation)
        socket.until("response.in_progress")
        question, answer = client.conversations.items.list(conversation, order="asc")
        with pytest.raises(openai.BadRequestError, match="item_id: what follows is being generated"):
            client.conversations.items.delete(str(question.id), conversation_id=conversation)
        client.conversations.items.delete(str(answer.id), conversation_id=conversation)
        assert socket.answer()[-1]["type"] == "response.cancelled"
        assert [item.id for item in client.conversations.items.list(conversation)] == [question.id]
        server.engine.paused = False
        socket.ask("two", conversation=conversation)
    assert server.engine.submissions[-1].text == "user\noneuser\ntwoassistant\n"


@dataclass
class SlowTemplate(FakeEngine):
    """Renders prompts only once it may."""

    may_render: bool = False
    is_rendering: bool = False

    async def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        self.is_rendering = True
        while not self.may_render:  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.002)
        return await super().encode_chat(messages)


def test_a_turn_that_is_being_planned_brings_no_deleted_conversation_back(serve: Callable[..., ServerThread]) -> None:
    engine = SlowTemplate()
    with serve(engine) as server, Socket(server) as socket, ThreadPoolExecutor(1) as thread:
        conversation = server.client().conversations.create().id
        socket.create("hi", conversation=conversation)
        wait_until(lambda: engine.is_rendering)
        deleting = thread.submit(server.client().conversations.delete, conversation)
        wait([deleting], timeout=0.3)
        engine.may_render = True
        assert deleting.result().deleted
        socket.answer()
        with pytest.raises(openai.NotFoundError):
            server.client().conversations.retrieve(conversation)
        assert get(server, "/v1/conversations")["data"] == []


def test_what_is_added_while_a_conversation_is_deleted_does_not_bring_it_back(
    serve: Callable[..., ServerThread],
) -> None:
    engine = SlowTemplate()
    with serve(engine) as server, Socket(server) as socket, ThreadPoolExecutor(2) as threads:
        client = server.client()
        conversation = client.conversations.create().id
        socket.create("hi", conversation=conversation)
        wait_until(lambda: engine.is_rendering)
        deleting = threads.submit(client.conversations.delete, conversation)
        wait([deleting], timeout=0.3)
        message: Any = [{"role": "user", "content": "late"}]
        adding = threads.submit(client.conversations.items.create, conversation, items=message)
        wait([adding], timeout=0.3)
        engine.may_render = True
        assert deleting.result().deleted
        with pytest.raises(openai.NotFoundError):
            adding.result()
        assert get(server, "/v1/conversations")["data"] == []


def test_a_new_title_is_not_undone_by_a_turn(server: RunningServer) -> None:
    server.engine.paused = True
    client = server.client()
    conversation = client.conversations.create(metadata={"title": "old"}).id
    with Socket(server) as socket:
        socket.create("hi", conversation=conversation)
        socket.until("response.in_progress")
        client.conversations.update(conversation, metadata={"title": "new"})
        server.engine.paused = False
        socket.answer()
        socket.ask("again", conversation=conversation)
    assert client.conversations.retrieve(conversation).metadata == {"title": "new"}


def test_a_list_does_not_end_where_what_it_goes_on_behind_has_been_deleted(server: RunningServer) -> None:
    client = server.client()
    gone, kept = (client.conversations.create().id for _ in range(2))
    client.conversations.delete(gone)
    for path in (f"/v1/conversations?after={gone}", f"/v1/conversations/{kept}/items?after=msg_x"):
        answer = httpx.get(server.url + path)
        assert (answer.status_code, answer.json()["error"]["param"]) == (404, "after")


def test_the_list_is_by_last_use_in_pages_and_searched(server: RunningServer) -> None:
    client = server.client()
    ids = [client.conversations.create(metadata={"title": f"Äpfel {n}"}).id for n in range(5)]
    client.responses.create(input="hi", conversation=ids[1])
    newest = [ids[1], ids[4], ids[3], ids[2], ids[0]]
    page = get(server, "/v1/conversations?limit=2&query=äpfel")
    assert (page["object"], page["has_more"]) == ("list", True)
    assert (page["first_id"], page["last_id"]) == (newest[0], newest[1])
    listed = [conversation["id"] for conversation in page["data"]]
    rest = get(server, f"/v1/conversations?limit=50&query=äpfel&after={newest[1]}")
    listed += [conversation["id"] for conversation in rest["data"]]
    assert listed == newest
    assert not rest["has_more"]
    assert [c["id"] for c in get(server, "/v1/conversations?query=pfel%203")["data"]] == [ids[3]]
    oldest = get(server, "/v1/conversations?order=asc&query=äpfel")["data"]
    assert [c["id"] for c in oldest] == newest[::-1]
    for conversation in ids:
        client.conversations.delete(conversation)


@pytest.mark.parametrize(
    ("query", "param"), [("limit=0", "limit"), ("limit=101", "limit"), ("limit=x", "limit"), ("order=up", "order")]
)
def test_bad_pages_are_refused_with_their_limit(server: RunningServer, query: str, param: str) -> None:
    answer = httpx.get(f"{server.url}/v1/conversations?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_places_that_are_not_in_the_conversation_are_refused(server: RunningServer) -> None:
    client = server.client()
    conversation, other = client.conversations.create().id, client.conversations.create().id
    foreign = client.responses.create(input="x", conversation=other)
    with Socket(server) as socket:
        for fields, param in (
            ({"previous_response_id": foreign.id}, "previous_response_id"),
            ({"parent_id": foreign.output[0].id}, "parent_id"),
            ({"conversation": "conv_" + "x" * 32}, "conversation"),
        ):
            socket.create("y", **({"conversation": conversation} | fields))
            assert socket.recv()["error"]["param"] == param
        socket.send("response.create", conversation=other, parent_id=foreign.output[0].id)
        assert socket.recv()["error"]["param"] == "input"  # an answer is not answered again
