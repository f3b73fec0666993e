"""Two servers on one store, of which the second goes on with what the first has begun."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import redis

from tests.chatsrv.conftest import RunningServer, ServerThread, wait_until
from tests.chatsrv.sockets import Socket
from tests.fakes import FakeEngine

LONG = "0123456789" * 30


class Relay:
    """Two servers with scripted engines; what the first runs is given to the second as if the first had died."""

    KEY = "a-key"

    def __init__(
        self, serve: Callable[..., ServerThread], url: str, stack: ExitStack, api_keys: str = "", **other: Any
    ) -> None:
        self.engine, self.other = FakeEngine(delay_s=0.005), FakeEngine(**other)
        self.engine.enqueue(LONG)
        self.other.enqueue(LONG)
        self._thread = serve(self.engine, redis_url=url, api_keys=api_keys, drain_timeout_s=3600)
        self.first = stack.enter_context(self._thread)
        self.second = stack.enter_context(serve(self.other, redis_url=url, api_keys=api_keys))
        self.redis = stack.enter_context(redis.Redis.from_url(url))
        self._stack = stack

    def socket(self, server: RunningServer) -> Socket:
        return self._stack.enter_context(Socket(server, additional_headers={"Authorization": f"Bearer {self.KEY}"}))

    def begin(self, **fields: Any) -> str:
        """An answer that stands still after a while."""
        far = self.socket(self.first)
        far.create("x", **fields)
        response_id: str = far.until("response.output_text.delta")[0]["response"]["id"]
        self.engine.paused = True
        wait_until(lambda: bool(self.redis.xlen(f"chatsrv:{{{response_id[5:17]}}}:events:{response_id}")))
        return response_id

    def leave(self) -> None:
        """Let the first server look for orphans no more."""
        self._thread.stop()

    def lose(self, response_id: str) -> None:
        """Let the second server take it over, though the first one is well."""
        process_id = self.redis.hget("chatsrv:running", response_id).decode()

        def is_taken_up() -> bool:
            self.redis.delete(f"chatsrv:process:{process_id}")
            return bool(self.other.submissions)

        wait_until(is_taken_up)
        wait_until(lambda: self.engine.submissions[0].aborted)

    def give(self, response_id: str) -> list[dict[str, Any]]:
        """Let the second server find it; the events as a client there sees them."""
        self.leave()
        near = self.socket(self.second)
        self.redis.hset("chatsrv:running", response_id, "dead")
        near.send("response.resume", response_id=response_id)
        return near.answer()
