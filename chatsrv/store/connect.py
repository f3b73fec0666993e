"""A client for any way a store may be deployed: one server, TLS, a Unix socket, Sentinel or Cluster."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import ExponentialBackoff

Client = Any
"""``Redis`` or ``RedisCluster``: redis-py types their shared commands for neither async nor sync."""

# Well above the longest blocking read, and short enough that an outage is noticed while a client still waits.
_TIMEOUTS: dict[str, Any] = {"socket_timeout": 5.0, "socket_connect_timeout": 2.0, "protocol": 2}


def connect(url: str) -> Client:
    """A client for ``redis://``, ``rediss://``, ``unix://``, ``redis+cluster://`` or ``redis+sentinel://``.

    A Sentinel URL lists its hosts and names the service: ``redis+sentinel://host:26379,host2:26379/mymaster``.
    No connection is made yet.

    Raises:
        ValueError: the URL is of none of these forms.
    """
    options = {**_TIMEOUTS, "retry": Retry(ExponentialBackoff(cap=0.2, base=0.02), 2)}
    scheme, _, rest = url.partition("://")
    if scheme in ("redis+cluster", "rediss+cluster"):
        return RedisCluster.from_url(f"{scheme.removesuffix('+cluster')}://{rest}", **_TIMEOUTS)
    if scheme == "redis+sentinel":
        return _sentinel(url, options)
    return Redis.from_url(url, **options)


async def disconnect(client: Client) -> None:
    """Close all connections, those to Sentinels included, which the client itself leaves open."""
    await client.aclose()
    manager = getattr(getattr(client, "connection_pool", None), "sentinel_manager", None)
    for sentinel in manager.sentinels if manager is not None else ():
        await sentinel.aclose()


def _sentinel(url: str, options: dict[str, Any]) -> Client:
    parts = urlsplit(url)
    credentials, _, hosts = parts.netloc.rpartition("@")
    service = parts.path.strip("/")
    if not service:
        raise ValueError("a redis+sentinel:// URL needs the service's name as its path")
    user, _, password = credentials.partition(":")
    sentinels = [_host_port(host) for host in hosts.split(",")]
    make_sentinel: Any = Sentinel
    return make_sentinel(sentinels, **_TIMEOUTS).master_for(
        service, username=user or None, password=password or None, **options
    )


def _host_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return (host, int(port)) if host else (text, 26379)
