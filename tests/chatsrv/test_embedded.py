"""The embedded store: one owner of a folder, data that stays, and no trouble with what a killed server left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from chatsrv.embedded import EmbeddedStore, StoreStartError
from chatsrv.store import connect
from tests.machine import need_program


@pytest.fixture(params=["valkey", "redis"])
def program(request: pytest.FixtureRequest) -> str | None:
    """The server that comes with chatsrv, and Debian's."""
    return None if request.param == "valkey" else need_program("redis-server")


async def put(url: str, key: str, value: str) -> None:
    client = connect(url)
    await client.set(key, value)
    await client.aclose()


async def get(url: str, key: str) -> bytes | None:
    client = connect(url)
    value: bytes | None = await client.get(key)
    await client.aclose()
    return value


async def test_data_survives_a_restart(tmp_path: Path, program: str | None) -> None:
    async with EmbeddedStore(tmp_path, program) as url:
        await put(url, "k", "v")
    async with EmbeddedStore(tmp_path, program) as url:
        assert await get(url, "k") == b"v"


async def test_a_second_start_in_one_folder_is_refused(tmp_path: Path) -> None:
    async with EmbeddedStore(tmp_path) as url:
        with pytest.raises(StoreStartError, match=f"in use by another chatsrv .process {os.getpid()}.*--data-dir"):
            await EmbeddedStore(tmp_path).__aenter__()
        await put(url, "still", "works")


@pytest.mark.parametrize(("folder", "why"), [("a_file", "Not a directory"), ("/proc/x", "No such file")])
async def test_what_cannot_be_a_folder_is_refused_with_the_reason(tmp_path: Path, folder: str, why: str) -> None:
    (tmp_path / "a_file").write_text("")
    with pytest.raises(StoreStartError, match=f"{folder} cannot be used: {why}.*--data-dir"):
        await EmbeddedStore(tmp_path / folder).__aenter__()


async def test_folders_may_lie_deep(tmp_path: Path) -> None:
    """Longer than a Unix socket's address may be."""
    deep = tmp_path.joinpath(*["a-folder-with-a-long-name"] * 6)
    async with EmbeddedStore(deep) as url:
        await put(url, "k", "v")


async def test_a_store_without_its_server_is_replaced(tmp_path: Path, program: str | None) -> None:
    """As after kill -9 of the server: the lock is free, the old store still runs, and nothing is lost."""
    orphan = EmbeddedStore(tmp_path, program)
    url = await orphan.__aenter__()
    await put(url, "k", "v")
    assert orphan._lock is not None
    assert orphan._keeper is not None
    orphan._keeper.cancel()
    orphan._lock.close()
    async with EmbeddedStore(tmp_path, program) as fresh:
        assert await get(fresh, "k") == b"v"
        assert orphan._process is not None
        assert orphan._process.wait(5) == 0
    await orphan.__aexit__()


async def test_a_stale_socket_is_no_obstacle(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path)
    await store.__aenter__()
    assert store._process is not None
    store._process.send_signal(signal.SIGKILL)
    store._process.wait()
    await store.__aexit__()
    assert (tmp_path / "store" / "store.sock").exists()
    async with EmbeddedStore(tmp_path) as url:
        await put(url, "k", "v")


async def test_a_store_that_cannot_start_says_where_its_log_is(tmp_path: Path) -> None:
    with pytest.raises(StoreStartError, match=r"store\.log"):
        await EmbeddedStore(tmp_path, "/bin/false").__aenter__()
    async with EmbeddedStore(tmp_path):  # the lock was given back
        pass
