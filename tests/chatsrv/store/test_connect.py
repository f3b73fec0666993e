"""Clients for each way a store may be deployed; no connection is made."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis, RedisCluster, SSLConnection, UnixDomainSocketConnection

from chatsrv.store.connect import connect


def _options(client: Any) -> dict[str, Any]:
    return client.connection_pool.connection_kwargs


async def test_a_plain_url_with_password_and_database() -> None:
    client = connect("redis://:secret@db.example:6380/2")
    assert isinstance(client, Redis)
    options = _options(client)
    assert (options["host"], options["port"], options["db"], options["password"]) == ("db.example", 6380, 2, "secret")


async def test_reads_and_connects_have_time_limits() -> None:
    options = _options(connect("redis://db.example"))
    assert 0 < options["socket_connect_timeout"] < options["socket_timeout"]


async def test_tls_and_unix_sockets() -> None:
    assert connect("rediss://db.example").connection_pool.connection_class is SSLConnection
    local = connect("unix:///run/store.sock")
    assert local.connection_pool.connection_class is UnixDomainSocketConnection
    assert _options(local)["path"] == "/run/store.sock"


async def test_a_cluster() -> None:
    client = connect("redis+cluster://db.example:7000")
    assert isinstance(client, RedisCluster)
    assert [(node.host, node.port) for node in client.nodes_manager.startup_nodes.values()] == [("db.example", 7000)]


async def test_sentinels_name_hosts_service_and_credentials() -> None:
    client = connect("redis+sentinel://user:secret@one.example:26380,two.example/mymaster")
    pool = client.connection_pool
    assert pool.service_name == "mymaster"
    found = [_options(sentinel) for sentinel in pool.sentinel_manager.sentinels]
    assert [(one["host"], one["port"]) for one in found] == [("one.example", 26380), ("two.example", 26379)]
    assert (_options(client)["username"], _options(client)["password"]) == ("user", "secret")


@pytest.mark.parametrize("url", ["db.example", "http://db.example", "redis+sentinel://one.example:26379"])
async def test_any_other_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        connect(url)
