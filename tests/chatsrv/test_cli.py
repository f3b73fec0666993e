"""The command line stops with one clear sentence, or serves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from chatsrv.cli import main
from chatsrv.seam import EngineSeam
from chatsrv.server import AddressError, Server
from chatsrv.settings import ServerSettings
from tests.fakes import FakeEngine


@pytest.mark.parametrize(
    ("arguments", "environ", "says"),
    [
        (["--port", "x"], {}, "--port must be a whole number, not 'x'"),
        ([], {"CHATSRV_POTR": "1"}, "unknown setting CHATSRV_POTR in the environment; did you mean CHATSRV_PORT?"),
        (["--block-size", "7"], {}, "block_size must be from 8 to 256, not 7"),
        ([], {"CHATSRV_DTYPE": "float8"}, "CHATSRV_DTYPE must be one of auto, float32, bfloat16, float16"),
        (["--redis-url", "http://x"], {}, "redis_url"),
    ],
)
def test_a_wrong_setting_stops_the_start(
    arguments: list[str],
    environ: dict[str, str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert main(["serve", "--data-dir", str(tmp_path), "--model", str(tmp_path / "none.gguf"), *arguments]) != 0
    error = capsys.readouterr().err
    assert error.startswith("chatsrv: ")
    assert says in error
    assert error.count("\n") == 1


def test_a_taken_port_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", "--data-dir", str(tmp_path), "--port", port]) == 1
    assert capsys.readouterr().err == f"chatsrv: cannot listen on 127.0.0.1 port {port}: Address already in use\n"


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_port_that_is_taken_while_the_model_loads_is_named(
    make_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    """Two may bind an address of which nobody listens yet."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        settings = ServerSettings(port=other.getsockname()[1], data_dir=tmp_path)

        @asynccontextmanager
        async def load() -> AsyncIterator[EngineSeam]:
            other.listen()
            yield FakeEngine()

        with (
            asyncio.Runner(loop_factory=make_loop) as runner,
            pytest.raises(
                AddressError, match=rf"cannot listen on 127\.0\.0\.1 port {settings.port}: [Aa]ddress already"
            ),
        ):
            runner.run(Server(settings, load).run())


def test_a_missing_model_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = tmp_path / "none.gguf"
    assert main(["serve", "--data-dir", str(tmp_path), "--port", "0", "--model", str(model)]) == 1
    assert "none.gguf" in capsys.readouterr().err
