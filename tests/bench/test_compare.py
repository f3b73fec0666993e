"""The comparison with peers: rounds go around, medians and ratios are right, a broken peer does not end the rest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bench.compare import Contestant, compete, table

SCRIPT = """
import json, pathlib, sys
log = pathlib.Path(sys.argv[1]); name = sys.argv[2]; rates = sys.argv[3].split(",")
turn = log.read_text().splitlines().count(name) if log.exists() else 0
with log.open("a") as file: file.write(name + "\\n")
print("a line of some log")
print(json.dumps({"peer": name, "n": 1, "out_tok_s": float(rates[turn])}))
"""


def _contestant(name: str, rates: str, log: Path) -> Contestant:
    return Contestant(name=name, version="1", command=(sys.executable, "-c", SCRIPT, str(log), name, rates))


def test_contestants_take_turns_and_the_median_counts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    contestants = [_contestant("chatsrv", "10,90,20", log), _contestant("other", "5,6,7", log)]
    medians = compete(contestants, ["--n", "1"], num_rounds=3)
    assert medians == {"chatsrv": {1: 20.0}, "other": {1: 6.0}}
    assert log.read_text().split() == ["chatsrv", "other"] * 3


def test_a_broken_peer_is_told_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    broken = Contestant(name="other", version="1", command=(sys.executable, "-c", "raise SystemExit('no model')"))
    assert compete([broken], [], num_rounds=1) == {"other": {}}
    assert "other failed:\nno model" in capsys.readouterr().err


def test_the_table_compares_with_the_best_peer_of_each_size() -> None:
    medians = {"chatsrv": {1: 130.0, 8: 90.0}, "fast": {1: 100.0}, "steady": {1: 50.0, 8: 180.0}}
    assert table(medians).splitlines() == [
        "| out tok/s | n=1 | n=8 |",
        "|---|--:|--:|",
        "| chatsrv | 130 | 90 |",
        "| fast | 100 | - |",
        "| steady | 50 | 180 |",
        "| chatsrv / best peer | 1.30 | 0.50 |",
    ]


def test_without_peers_there_is_no_ratio() -> None:
    assert table({"chatsrv": {1: 130.0}}).splitlines()[-1] == "| chatsrv / best peer | - |"
