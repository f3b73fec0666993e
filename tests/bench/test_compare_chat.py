"""The comparison of servers: medians of two figures, ratios to the best of each, and a peer that breaks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench import compare_chat
from bench.chat_load import Load, Target
from bench.compare_chat import Contestant, compete, peer_server, table
from bench.peers import Peer

LOAD = Load("m", 1, 2, 3, 3, ignore_eos=False, seed=1)


def _contestant(name: str, started: list[str]) -> Contestant:
    @contextmanager
    def start() -> Iterator[str]:
        started.append(name)
        yield name

    return Contestant(name, "1", start)


def test_rounds_go_around_and_medians_count(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"chatsrv": iter([9, 30, 10, 9, 90, 50, 9, 20, 90]), "other": iter(range(9))}

    async def answer(count: int, target: Target, load: Load) -> dict[str, Any]:
        rate = next(rates[target.base])
        return {"out_tok_s": rate, "ttft_p50": rate / 100}

    monkeypatch.setattr(compare_chat, "converse_all", answer)
    started: list[str] = []
    medians = compete([_contestant("chatsrv", started), _contestant("other", started)], [1, 8], LOAD, 3)
    assert started == ["chatsrv", "other"] * 3
    assert medians["chatsrv"] == {1: (30, 0.3), 8: (50, 0.5)}
    assert medians["other"] == {1: (4, 0.04), 8: (5, 0.05)}


def test_a_broken_server_is_told_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    @contextmanager
    def start() -> Iterator[str]:
        raise RuntimeError("no model")
        yield ""

    assert compete([Contestant("other", "1", start)], [1], LOAD, 1) == {"other": {}}
    assert "other failed: no model" in capsys.readouterr().err


def test_each_figure_is_compared_with_the_best_peer() -> None:
    medians = {"chatsrv": {1: (130.0, 0.1)}, "fast": {1: (100.0, 0.5)}, "quick": {1: (50.0, 0.2)}}
    assert table(medians).splitlines()[2:] == [
        "| chatsrv | 130 · 0.10 s |",
        "| fast | 100 · 0.50 s |",
        "| quick | 50 · 0.20 s |",
        "| chatsrv / best peer | 1.30 · 0.50 |",
    ]


@dataclass(frozen=True, slots=True)
class ScriptedPeer(Peer):
    """Answers with whatever the code does; it finds the port as its argument."""

    code: str = ""

    def serve_command(self, port: int) -> list[str]:
        return [sys.executable, "-c", self.code, str(port)]


ANSWERS = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_peer_is_waited_for_and_ended(tmp_path: Path) -> None:
    with peer_server(ScriptedPeer("vllm", tmp_path, ANSWERS)) as base:
        assert base.endswith("/v1")
    with pytest.raises(RuntimeError, match="does not answer"), peer_server(ScriptedPeer("vllm", tmp_path, "")):
        pass
