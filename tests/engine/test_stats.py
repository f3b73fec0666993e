"""Counters, rates and histograms against plain recounts, with the model-free engine."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config import EngineConfig
from engine.plan import StepResult
from engine.stats import RATE_WINDOW_S, EngineStats, StatsRecorder, StepTimes
from engine.step import Step
from tests.engine.simulation import Simulation, random_prompt


class RecordedSimulation(Simulation):
    """Tells a recorder what the engine's loop would."""

    def __init__(self, **settings: Any) -> None:
        defaults = {"num_blocks": 64, "num_swap_blocks": 0, "max_num_seqs": 8, "max_num_batched_tokens": 128}
        super().__init__(EngineConfig(**{**defaults, **settings}))
        self.recorder = StatsRecorder(started_at=0.0)

    def finish_step(self, step: Step, result: StepResult) -> None:
        told = {request_id: len(outputs) for request_id, outputs in self.outputs.items()}
        super().finish_step(step, result)
        self.recorder.record_step(step, result, 0.002, 0.003, self.now)
        for request_id, request in self.requests.items():
            for output in self.outputs[request_id][told[request_id] :]:
                self.recorder.record_output(request, output, self.now)

    @property
    def stats(self) -> EngineStats:
        return self.recorder.snapshot(self.scheduler, self.manager, self.now)


def record_tokens(recorder: StatsRecorder, num_tokens: int, now: float) -> None:
    result = StepResult([(SimpleNamespace(),) * num_tokens], {}, 0.0, 0.0, 0.0)
    recorder.record_step(Step(0), result, 0.0, 0.0, now)


def test_an_idle_engine_has_done_nothing():
    stats = RecordedSimulation().stats
    assert (stats.num_steps, stats.times, stats.output_tokens_per_s) == (0, StepTimes(), 0.0)
    assert (stats.cache_hit_rate, stats.occupancy.waste) == (0.0, 0.0)
    assert stats.time_to_first_token_s.num_observations == 0
    assert stats.occupancy.blocks.free == 64


def test_steps_and_tokens_add_up():
    simulation = RecordedSimulation()
    simulation.submit(list(range(20)), max_tokens=5)
    simulation.submit(list(range(30, 40)), max_tokens=3, n=2)
    simulation.run()
    stats = simulation.stats
    assert stats.num_steps == simulation.num_steps
    assert stats.times == pytest.approx([n * simulation.num_steps for n in (0.002, 0.001, 0.01, 0.001, 0.003)])
    assert (stats.num_prompt_tokens, stats.num_output_tokens) == (30, 5 + 2 * 3)
    assert (stats.prompt_tokens_per_s, stats.output_tokens_per_s) == (30, 11)  # in less than a second


def test_latencies_are_per_request_and_step():
    simulation = RecordedSimulation()
    simulation.submit([1, 2, 3], max_tokens=5, n=3)
    simulation.run()
    first, later = simulation.stats.time_to_first_token_s, simulation.stats.inter_token_s
    assert (first.num_observations, first.total) == (1, pytest.approx(0.01))
    assert (later.num_observations, later.total) == (4, pytest.approx(0.04))


def test_the_hit_rate_is_by_tokens():
    simulation = RecordedSimulation()
    for _ in range(2):
        simulation.submit(list(range(60)), max_tokens=1)
        simulation.run()
    stats = simulation.stats
    assert (stats.num_prompt_tokens, stats.num_cached_tokens) == (120, 59)
    assert stats.cache_hit_rate == 59 / 120


def test_occupancy_counts_shared_blocks_once_and_classes_apart():
    simulation = RecordedSimulation(max_num_seqs=3)
    simulation.submit(list(range(32)), max_tokens=10, n=3)
    simulation.submit([1], max_tokens=1, priority="flex")
    for _ in range(6):
        simulation.step()
    occupancy = simulation.stats.occupancy
    assert occupancy.blocks.held == 2 + 3
    assert (occupancy.num_slots_allocated, occupancy.num_slots_filled) == (5 * 16, 2 * 16 + 3 * 6)
    assert occupancy.waste == pytest.approx(30 / 80)
    assert occupancy.num_running == {"priority": 0, "default": 1, "flex": 0}
    assert occupancy.num_waiting == {"priority": 0, "default": 0, "flex": 1}


@pytest.mark.parametrize(("num_swap_blocks", "way"), [(64, "swap"), (0, "recompute")])
def test_preemptions_are_counted_by_kind(num_swap_blocks, way):
    simulation = RecordedSimulation(num_blocks=7, num_swap_blocks=num_swap_blocks, preemption="swap")
    source = random.Random(0)
    requests = [simulation.submit(random_prompt(source, 34), max_tokens=35) for _ in range(2)]
    simulation.run()
    expected = sum(request.num_preemptions for request in requests)
    preemptions = simulation.stats.preemptions
    assert expected > 0
    assert (preemptions.swap, preemptions.recompute) == ((expected, 0) if way == "swap" else (0, expected))


@given(st.lists(st.floats(0, 200)))
def test_histograms_count_each_observation_once(waits):
    recorder, simulation = StatsRecorder(started_at=0.0), Simulation(EngineConfig(num_blocks=1, num_swap_blocks=0))
    told = SimpleNamespace(token_ids=(1,))
    for waited_s in waits:
        request = SimpleNamespace(last_token_at=None, arrived_at=0.0, num_prompt_tokens=1, num_cached_tokens=0)
        recorder.record_output(request, told, waited_s)
    histogram = recorder.snapshot(simulation.scheduler, simulation.manager, 0.0).time_to_first_token_s
    assert histogram.num_observations == len(waits)
    assert histogram.total == pytest.approx(sum(waits))
    for i, bound in enumerate(histogram.bounds):
        assert sum(histogram.counts[: i + 1]) == sum(waited_s <= bound for waited_s in waits)


@given(st.lists(st.tuples(st.floats(0, 3), st.integers(0, 50)), max_size=40), st.floats(0, 30))
def test_rates_are_means_over_the_last_seconds(gaps, idle_s):
    recorder, simulation = StatsRecorder(started_at=0.0), Simulation(EngineConfig(num_blocks=1, num_swap_blocks=0))
    now, tokens = 0.0, []
    for gap_s, count in gaps:
        now += gap_s
        record_tokens(recorder, count, now)
        tokens.append((now, count))
    now += idle_s
    window_start = max(int(now) - RATE_WINDOW_S, 0)
    expected = sum(count for at, count in tokens if at >= window_start) / max(now - window_start, 1.0)
    stats = recorder.snapshot(simulation.scheduler, simulation.manager, now)
    assert stats.output_tokens_per_s == pytest.approx(expected)
