"""Counters, rates and histograms against plain recounts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.block_pool import BlockCounts
from engine.stats import RATE_WINDOW_S, Occupancy, StatsCollector, StepTimes

NO_BLOCKS = BlockCounts(0, 0, 0, 0)


def occupancy(num_slots_allocated=0, num_slots_filled=0):
    nobody = {"priority": 0, "default": 0, "flex": 0}
    return Occupancy(NO_BLOCKS, NO_BLOCKS, num_slots_allocated, num_slots_filled, nobody, nobody)


def snapshot(collector, now=0.0):
    return collector.snapshot(occupancy(), now)


def test_a_fresh_engine_has_done_nothing():
    stats = snapshot(StatsCollector(started_at=5.0), now=5.0)
    assert (stats.num_steps, stats.times, stats.output_tokens_per_s) == (0, StepTimes(), 0.0)
    assert (stats.cache_hit_rate, stats.occupancy.waste) == (0.0, 0.0)
    assert stats.time_to_first_token_s.num_observations == 0


def test_steps_add_up():
    collector = StatsCollector(started_at=0.0)
    for i in range(1, 4):
        collector.record_step(StepTimes(i, 10 * i, 100 * i, 0.5, 0.25), num_prompt_tokens=7, num_output_tokens=i, now=i)
    stats = snapshot(collector, now=3.0)
    assert (stats.num_steps, stats.num_output_tokens) == (3, 6)
    assert stats.times == StepTimes(6, 60, 600, 1.5, 0.75)
    assert stats.prompt_tokens_per_s == 7


def test_the_hit_rate_is_by_tokens():
    collector = StatsCollector(started_at=0.0)
    collector.record_prompt(100, num_cached=0)
    collector.record_prompt(300, num_cached=200)
    assert snapshot(collector).cache_hit_rate == 0.5


def test_waste_is_the_share_of_empty_slots():
    assert occupancy(num_slots_allocated=64, num_slots_filled=48).waste == 0.25


def test_preemptions_are_counted_by_kind():
    collector = StatsCollector(started_at=0.0)
    for way in ("swap", "recompute", "swap"):
        collector.record_preemption(way)
    stats = snapshot(collector)
    assert (stats.num_swap_preemptions, stats.num_recompute_preemptions) == (2, 1)


@given(st.lists(st.floats(0, 200)))
def test_histograms_count_each_observation_once(values):
    collector = StatsCollector(started_at=0.0)
    for value in values:
        collector.record_first_token(value)
    histogram = snapshot(collector).time_to_first_token_s
    assert histogram.num_observations == len(values)
    assert histogram.total == pytest.approx(sum(values))
    for i, bound in enumerate(histogram.bounds):
        assert sum(histogram.counts[: i + 1]) == sum(value <= bound for value in values)


def test_first_and_later_tokens_have_histograms_of_their_own():
    collector = StatsCollector(started_at=0.0)
    collector.record_inter_token(0.02)
    stats = snapshot(collector)
    assert stats.time_to_first_token_s.num_observations == 0
    assert stats.inter_token_s.counts[stats.inter_token_s.bounds.index(0.02)] == 1


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 50)), max_size=40), st.floats(0, 30))
def test_rates_are_means_over_the_last_seconds(gaps, idle_s):
    collector, now, tokens = StatsCollector(started_at=0.0), 0.0, []
    for gap_s, count in gaps:
        now += gap_s
        collector.record_step(StepTimes(), num_prompt_tokens=0, num_output_tokens=count, now=now)
        tokens.append((now, count))
    now += idle_s
    window_start = max(int(now) - RATE_WINDOW_S, 0)
    expected = sum(count for at, count in tokens if at >= window_start) / max(now - window_start, 1.0)
    assert snapshot(collector, now).output_tokens_per_s == pytest.approx(expected)
