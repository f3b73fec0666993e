"""Real server processes with scripted engines, and the Redis that they share."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import redis

from tests.chaos.proxy import Proxy
from tests.chatsrv.conftest import free_port
from tests.machine import need_program


class World:
    """Servers and a store, each of which may be killed and started again.

    Args:
        settings: of the servers, beyond where they are and where their store is.
    """

    def __init__(self, folder: Path, randomness: random.Random, num_servers: int = 2, **settings: Any) -> None:
        self._folder = folder
        self._settings = settings
        self._random = randomness
        self._nursery = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.nursery"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._redis_port = free_port()
        self._redis: subprocess.Popen[bytes] | None = None
        self._servers = {free_port(): 0 for _ in range(num_servers)}
        self.num_deaths = 0
        self.start_redis()
        for port in self._servers:
            self.start_server(port)

    def start_redis(self) -> None:
        options = ["--port", str(self._redis_port), "--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        command = [need_program("redis-server"), *options, "--dir", str(self._folder)]
        self._redis = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        for _ in range(1000):
            with suppress(redis.RedisError), redis.Redis(port=self._redis_port) as client:
                client.ping()
                return
            time.sleep(0.02)

    def start_server(self, port: int) -> None:
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        places = {"data_dir": str(self._folder), "redis_url": f"redis://127.0.0.1:{self._redis_port}"}
        self._nursery.stdin.write(json.dumps({"port": port, **places, **self._settings}) + "\n")
        self._nursery.stdin.flush()
        self._servers[port] = int(self._nursery.stdout.readline())

    def is_ready(self) -> bool:
        """Whether all servers answer."""
        with suppress(httpx.TransportError):
            return all(httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200 for port in self._servers)
        return False

    @property
    def ports(self) -> list[int]:
        return list(self._servers)

    def port(self) -> int:
        return self._random.choice(self.ports)

    async def hurt(self, proxy: Proxy) -> None:
        """One misfortune."""
        self.num_deaths += 1
        what = self._random.choice(["kill", "leave", "redis", "sockets", "sockets"])
        if what == "sockets":
            proxy.cut()
        elif what == "redis":
            assert self._redis is not None
            self._redis.kill()
            await asyncio.to_thread(self._redis.wait)
            await asyncio.sleep(self._random.random())
            await asyncio.to_thread(self.start_redis)
        else:
            await self.replace_server(self.port(), signal.SIGKILL if what == "kill" else signal.SIGTERM)

    async def replace_server(self, port: int, how: signal.Signals) -> None:
        """End a server by a signal, and start another in its place once it has ended."""
        with suppress(ProcessLookupError):
            os.kill(self._servers[port], how)
        await asyncio.to_thread(_wait_for_death, self._servers[port])
        self.start_server(port)

    def left_running(self) -> dict[bytes, bytes]:
        with redis.Redis(port=self._redis_port) as client:
            return dict(client.hgetall("chatsrv:running"))

    def close(self) -> None:
        for process_id in self._servers.values():
            with suppress(ProcessLookupError):
                os.kill(process_id, signal.SIGKILL)
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.close()
        self._nursery.wait()
        self._nursery.stdout.close()
        assert self._redis is not None
        self._redis.kill()
        self._redis.wait()


def _wait_for_death(process_id: int) -> None:
    """It is no child of ours, so it cannot be waited for."""
    with suppress(ProcessLookupError):
        while True:
            os.kill(process_id, 0)
            time.sleep(0.05)
