"""Readers that vanish leave nothing running, and who cancels is heard whatever happened to the connections between."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable

import pytest
import redis

from chatsrv.ids import tag_of
from chatsrv.store import keys
from tests.chatsrv.conftest import ServerThread, wait_until
from tests.chatsrv.sockets import Socket, output_text
from tests.fakes import FakeEngine

RESET = struct.pack("ii", 1, 0)  # SO_LINGER: a close that sends RST, as when the process is killed
IDLE_S = 6.0  # longer than the store's client waits for an answer


@pytest.mark.parametrize("num_events_read", [0, 1, 8])
def test_twenty_killed_clients_leave_nothing(serve: Callable[..., ServerThread], num_events_read: int) -> None:
    engine = FakeEngine(delay_s=0.001)
    with serve(engine, disconnect_grace_s=0) as server:
        for number in range(20):
            engine.enqueue("x" * 4000)
            with Socket(server) as killed:
                killed.create("x" * 2000, store=number % 2 == 0)
                for _ in range(num_events_read):
                    killed.recv()
                killed.connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                killed.connection.socket.close()
        wait_until(lambda: engine.running == 0)
        with Socket(server) as lively:
            assert lively.ask("y")["status"] == "completed"
    assert all(submission.aborted for submission in engine.submissions[:-1])


@pytest.mark.parametrize("idle_s", [0, IDLE_S])
def test_cancel_from_elsewhere_is_heard_after_a_silence_a_cut_of_all_connections_and_garbage(
    serve: Callable[..., ServerThread], redis_server: str, idle_s: float
) -> None:
    engine = FakeEngine(delay_s=0.01)
    engine.enqueue("x" * 4000)
    store = redis.Redis.from_url(redis_server)
    with (
        store,
        serve(engine, redis_url=redis_server) as runs,
        serve(FakeEngine(), redis_url=redis_server) as other,
        Socket(runs) as socket_,
    ):
        time.sleep(idle_s)
        socket_.create("x")
        response_id = socket_.until("response.in_progress")[0]["response"]["id"]
        store.sadd(keys.cancels(tag_of(response_id)), b"\xff\xfe not an id", "resp_of_nobody")
        for kind in ("normal", "pubsub"):
            store.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        assert other.client().responses.cancel(response_id).status == "cancelled"
        ended = socket_.answer()[-1]
        assert ended["type"] == "response.cancelled"
        assert output_text(socket_.ask("y", previous_response_id=response_id)) == "You said: y"
