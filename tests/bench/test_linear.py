"""The comparison runs, and its figures fit each other."""

from __future__ import annotations

from bench.linear import Layer, compare


def test_figures_follow_from_the_times() -> None:
    line = compare(Layer("small", 1024, 512, 4), num_rows=4)
    assert line["rows"] == 4
    gflop = 2e-9 * 4 * 1024 * 512
    for name in ("", "dense_"):
        seconds, speed = line[f"{name}us"], line[f"{name}gflop_per_s"]
        assert isinstance(seconds, float)
        assert isinstance(speed, float)
        assert abs(gflop / (seconds * 1e-6) / speed - 1) < 0.05
