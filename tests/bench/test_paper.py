"""The comparison with the paper in small: the order of the systems, and how figures are read off."""

import pytest

from bench.baselines import FASTER_TRANSFORMER, ORCA_MAX, ORCA_ORACLE, ORCA_POW2, PAGED
from bench.cost_model import OPT_13B
from bench.lengths import SHAREGPT
from bench.paper import Comparison, chat_arrivals, plot, saturated
from bench.trial import LATENCY_LIMIT_S, Outcome, Trial, poisson, simulated, sustained_rate, sweep

SETTING = simulated(OPT_13B, {"ShareGPT": (1.5, 2.0)})


def outcome(latency_s: float) -> Outcome:
    return Outcome(latency_s, 10.0, 1.0, 0.5, 0.3, 0.2)


def test_memory_is_used_in_the_order_of_the_paper():
    arrivals = poisson(SHAREGPT, 4.0, 40)
    outcomes = [Trial(policy, SETTING).outcome(arrivals) for policy in (ORCA_MAX, ORCA_POW2, ORCA_ORACLE, PAGED)]
    filled = [o.filled for o in outcomes]
    assert filled == sorted(filled)
    assert filled[0] < 0.3
    assert filled[-1] > 0.96
    assert [o.num_running for o in outcomes] == sorted(o.num_running for o in outcomes)
    assert outcomes[0].latency_s > outcomes[-1].latency_s
    for o in outcomes:
        assert o.filled + o.to_be_filled + o.never_filled == pytest.approx(1)


def test_static_batches_answer_late():
    arrivals = poisson(SHAREGPT, 1.0, 40)
    static, continuous = (Trial(policy, SETTING).outcome(arrivals) for policy in (FASTER_TRANSFORMER, ORCA_MAX))
    assert static.latency_s > 2 * continuous.latency_s


def test_a_step_takes_as_long_as_reading_or_computing():
    """A decode step reads 26 GB at 1.24 TB/s; a prefill of 2048 tokens computes 53 TFLOP at 156 TFLOP/s."""
    assert OPT_13B.step_s(1, 100) == pytest.approx(0.024, rel=0.05)
    assert OPT_13B.step_s(2048, 2048) == pytest.approx(0.344, rel=0.05)


def test_the_sustained_rate_lies_between_the_two_points_around_the_limit():
    points = sweep(lambda rate: outcome(LATENCY_LIMIT_S * rate / 3), rate=1.0)
    assert sustained_rate(points) == pytest.approx(3.0)
    assert sustained_rate(sweep(lambda rate: outcome(LATENCY_LIMIT_S * rate / 3), rate=8.0)) == pytest.approx(3.0)


def test_the_table_and_the_plot_name_every_system(tmp_path):
    points = [(1.0, outcome(LATENCY_LIMIT_S / 2)), (2.0, outcome(2 * LATENCY_LIMIT_S))]
    comparison = Comparison("A machine, some lengths", 2.0, {PAGED.name: points}, {PAGED.name: outcome(0.1)})
    assert "| chatsrv | 1.41 | 1.0 | 1.0 | 50.0% | 30.0% | 20.0% |" in comparison.table()
    plot(comparison, tmp_path)
    assert (tmp_path / "paper-a-machine-some-lengths.png").stat().st_size > 5000


def test_a_rate_that_is_never_too_high_is_told():
    with pytest.raises(ValueError, match="too few requests"):
        sweep(lambda rate: outcome(LATENCY_LIMIT_S / 2), rate=1.0)


@pytest.mark.parametrize("is_beam", [False, True])
def test_several_answers_share_memory_where_the_system_can(is_beam):
    """All are given, and those that share their prompt's blocks come sooner out of the same memory."""
    arrivals = poisson(SHAREGPT, 50.0, 6, n=4, is_beam=is_beam)
    reserving, paged = (Trial(policy, SETTING).outcome(arrivals) for policy in (ORCA_ORACLE, PAGED))
    assert paged.latency_s < reserving.latency_s


def test_chats_are_cut_to_what_their_history_may_have():
    lengths = [len(arrival.prompt) for arrival in chat_arrivals(1.0, 100.0)]
    assert max(lengths) == 1024
    assert lengths.count(1024) > 50


def test_at_once_is_a_table_of_all_systems():
    lines = saturated(SETTING, SHAREGPT, 12).splitlines()
    rates = [float(line.split("|")[2]) for line in lines if line.startswith("| ") and "system" not in line]
    assert len(rates) == 5
    assert rates[-1] > rates[0]
