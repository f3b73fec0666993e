"""The serving measurement on a real server that it starts and ends by itself."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from bench.chat_load import Load, Target
from bench.own_server import OwnServer, Spent
from bench.serve import costs, measure_other, measure_own

LOAD = Load(model="smollm2", num_turns=2, max_tokens=6, num_system_words=30, num_user_words=5, ignore_eos=True, seed=1)


def test_costs_are_differences_per_token() -> None:
    line: dict[str, object] = {"completion": 100, "wall_s": 4.0}
    found = costs(Spent(1.0, 0.5, 50), Spent(1.2, 0.6, 101), line)
    assert found == {
        "redis_commands_per_token": 0.5,
        "loop_share": 0.05,
        "server_share": 0.025,
        "server_us_per_token": 1000.0,
    }


async def test_a_server_of_its_own_is_measured_and_ended(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    servers: list[OwnServer] = []
    leave = OwnServer.__exit__

    def remember(server: OwnServer, *exc_info: object) -> None:
        servers.append(server)
        leave(server, None, None, None)

    monkeypatch.setattr(OwnServer, "__exit__", remember)
    await measure_own(Target(""), LOAD, [2], 20, ["--num-blocks", "64", "--num-swap-blocks", "0"])
    load, idle = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (load["sessions"], load["turns"], load["completion"]) == (2, 2, 24)
    assert load["cached"] > 0
    assert 0 < load["server_share"] < load["loop_share"] < 1
    assert load["redis_commands_per_token"] > 0
    assert idle["idle_sockets"] == 20
    (server,) = servers
    assert server.exit_status == 0
    with pytest.raises(httpx.ConnectError):
        await measure_other(Target(server.base, "sse"), LOAD, [1])


def test_a_server_that_does_not_start_is_told(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="before it was ready"), OwnServer(["--model", str(tmp_path / "none.gguf")]):
        pass
