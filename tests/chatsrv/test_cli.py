"""The command line stops with one clear sentence, or serves."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from chatsrv.cli import main


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


def test_a_missing_model_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = tmp_path / "none.gguf"
    assert main(["serve", "--data-dir", str(tmp_path), "--port", "0", "--model", str(model)]) == 1
    assert "none.gguf" in capsys.readouterr().err
