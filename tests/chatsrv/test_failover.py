"""Stores that fail over, are spread over slots, or lose the end of their file: conversations stay whole."""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis

from chatsrv.embedded import EmbeddedStore
from chatsrv.errors import NotFound
from chatsrv.ids import new_id, new_tag, tag_of
from chatsrv.records import ItemRecord, ResponseRecord, Session
from chatsrv.store import Store, connect
from chatsrv.wire import events
from chatsrv.wire.response import Response
from tests.chatsrv.conftest import ServerThread, free_port, store_answers, wait_until
from tests.chatsrv.sockets import Socket, output_text, text_of
from tests.fakes import FakeEngine
from tests.machine import need_program

LONG = "0123456789" * 30
NUM_CUTS = 8


class Redis:
    """A Redis process of the test's own."""

    def __init__(self, folder: Path, stack: ExitStack, *options: str, configuration: str = "") -> None:
        folder.mkdir()
        self.port = free_port()
        (folder / "conf").write_text(f'port {self.port}\nbind 127.0.0.1\ndir {folder}\nsave ""\n{configuration}\n')
        command = [need_program("redis-server"), str(folder / "conf"), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        stack.callback(self.kill)
        self.client = stack.enter_context(redis.Redis(port=self.port))
        wait_until(lambda: store_answers(self.client), 30)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_replica_that_is_promoted_in_mid_stream_loses_no_event(
    serve: Callable[..., ServerThread], tmp_path: Path, stack: ExitStack
) -> None:
    master = Redis(tmp_path / "master", stack)
    replica = Redis(tmp_path / "replica", stack, "--replicaof", "127.0.0.1", str(master.port))
    watch = f"sentinel monitor chat 127.0.0.1 {master.port} 1\nsentinel down-after-milliseconds chat 300\n"
    sentinel = Redis(tmp_path / "sentinel", stack, "--sentinel", configuration=watch)
    wait_until(lambda: replica.client.info("replication")["master_link_status"] == "up", 30)
    wait_until(lambda: sentinel.client.sentinel_masters()["chat"]["num-slaves"] == 1, 30)
    engine = FakeEngine(delay_s=0.005)
    engine.enqueue(LONG)
    url = f"redis+sentinel://127.0.0.1:{sentinel.port}/chat"
    server = stack.enter_context(serve(engine, redis_url=url))
    socket = stack.enter_context(Socket(server))
    socket.create("x")
    told = [socket.recv() for _ in range(30)]
    engine.paused = True
    wait_until(lambda: replica.client.exists(_events(told)) > 0)
    master.kill()
    engine.paused = False
    told += socket.answer()
    assert text_of(told) == LONG
    wait_until(lambda: replica.client.role()[0] == b"master", 30)
    wait_until(lambda: server.client().responses.retrieve(told[0]["response"]["id"]).status == "completed", 30)
    socket.send("response.resume", response_id=told[0]["response"]["id"])
    assert [event["sequence_number"] for event in socket.answer()] == list(range(len(told)))


def _events(told: list[dict[str, Any]]) -> str:
    response_id = told[0]["response"]["id"]
    return f"chatsrv:{{{tag_of(response_id)}}}:events:{response_id}"


def test_a_cluster_serves_resumes_cancels_and_hands_over(
    serve: Callable[..., ServerThread], tmp_path: Path, stack: ExitStack
) -> None:
    """One node that holds all slots refuses what crosses slots like a cluster of many."""
    bus = str(free_port())  # its default is 10000 above the other port, where there may be none
    node = Redis(tmp_path / "node", stack, "--cluster-enabled", "yes", "--cluster-port", bus)
    node.client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    wait_until(lambda: node.client.cluster("INFO")["cluster_state"] == "ok", 30)
    url = f"redis+cluster://127.0.0.1:{node.port}"
    engines = [FakeEngine(delay_s=0.002), FakeEngine(delay_s=0.002)]
    for engine in engines:
        engine.enqueue(LONG)
    first = serve(engines[0], redis_url=url)
    server = stack.enter_context(first)
    other = stack.enter_context(serve(engines[1], redis_url=url))
    with Socket(server) as socket:
        socket.create("x")
        told = [socket.recv() for _ in range(20)]
        first.stop()
    with Socket(other) as socket:
        response_id = told[0]["response"]["id"]
        socket.send("response.resume", response_id=response_id)
        events_there = socket.answer()
        assert text_of(events_there) == LONG
        assert events_there[: len(told)] == told
        assert output_text(socket.ask("on", previous_response_id=response_id)) == "You said: on"
        client = other.client()
        conversation = client.conversations.create().id
        socket.ask("y", conversation=conversation)
        assert len(client.conversations.items.list(conversation).data) == 2


async def _converse(store: Store, number: int) -> tuple[str, str]:
    """A finished turn, as a generation writes it; the response and the text of its answer."""
    tag, text = new_tag(), f"answer {number} " * 20
    response_id, asked_id, answer_id = new_id("resp", tag), new_id("msg", tag), new_id("msg", tag)
    asked = ItemRecord(id=asked_id, role="user", text="?", response_id=response_id)
    answer = ItemRecord(id=answer_id, role="assistant", text="", status="in_progress", parent_id=asked_id)
    response = Response(id=response_id, created_at=0, model="fake", status="queued")
    record = ResponseRecord(response=response, input_item_ids=[asked_id], output_item_id=answer_id)
    store.begin_turn(tag, Session(owner="local", head_id=answer_id), [asked, answer], record)
    store.journal.append(response_id, events.entry(events.Created(response=response), 0))
    delta = events.TextDelta(item_id=answer_id, delta=text)
    store.journal.append(response_id, events.entry(delta, 1, (1, 2, 3)))
    await store.journal.flushed(tag_of(response_id), 5)
    answer.text, answer.status, response.status = text, "completed", "completed"
    store.finish_turn(tag, [asked, answer], record, events.entry(events.terminal(response), 2))
    await store.journal.flushed(tag_of(response_id), 5)
    return response_id, text


def _append_only_file(folder: Path) -> Path:
    return next((folder / "store" / "appendonlydir").glob("*.incr.aof"))


async def test_an_append_only_file_cut_at_any_byte_keeps_every_conversation_before_the_cut(tmp_path: Path) -> None:
    """With the server, and the configuration, that chatsrv starts."""
    written: list[tuple[int, str, str]] = []
    async with EmbeddedStore(tmp_path / "whole") as url:
        store = Store(connect(url), session_ttl_s=3600, events_ttl_s=3600)
        await store.start()
        for number in range(30):
            response_id, text = await _converse(store, number)
            written.append((_append_only_file(tmp_path / "whole").stat().st_size, response_id, text))
        await store.close()
    size = written[-1][0]
    randomness = random.Random(5)
    for number in range(NUM_CUTS):
        folder, cut = tmp_path / str(number), randomness.randrange(written[0][0], size)
        shutil.copytree(tmp_path / "whole", folder)
        with _append_only_file(folder).open("rb+") as file:
            file.truncate(cut)
        async with EmbeddedStore(folder) as url:
            store = Store(connect(url), session_ttl_s=3600, events_ttl_s=3600)
            await store.start()
            for position, (end, response_id, text) in enumerate(written):
                if end <= cut:
                    await _check_whole(store, response_id, text)
                elif position and written[position - 1][0] <= cut:
                    await _check_consistent(store, response_id, text)
            await store.close()
        shutil.rmtree(folder)


async def _check_whole(store: Store, response_id: str, text: str) -> None:
    record = await store.response("local", response_id)
    tree = await store.tree(tag_of(response_id))
    assert record.response.status == "completed"
    assert tree[record.output_item_id or ""].text == text
    told = await store.told(response_id)
    assert [entry.sequence_number for entry in told.entries] == [0, 1, 2]


async def _check_consistent(store: Store, response_id: str, text: str) -> None:
    """The one that was being written is there as a whole batch left it, or not at all."""
    try:
        record = await store.response("local", response_id)
    except NotFound:
        return
    told, tree = await store.told(response_id), await store.tree(tag_of(response_id))
    assert [entry.sequence_number for entry in told.entries] == list(range(len(told.entries)))
    assert (record.response.status == "completed") == told.entries[-1].is_terminal if told.entries else True
    assert tree[record.output_item_id or ""].text in ("", text)
