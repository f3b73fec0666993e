"""The way of preemption follows measured cost, and only lower classes make room for a newcomer."""

from __future__ import annotations

from engine.api import PRIORITIES, Priority, SamplingParams
from engine.preemption import CostModel, choose_displaced
from engine.request import Request
from tests.engine.simulation import TOKENS


def test_the_cheaper_way_wins_and_measurements_move_it() -> None:
    costs = CostModel(block_bytes=1 << 20)
    for _ in range(50):
        costs.record_swap(100, 0.01)  # 10 GB/s
        costs.record_prefill(1000, 0, 1.0)  # 1000 tokens/s
    assert costs.is_swap_cheaper(num_blocks=10, num_tokens=160)
    for _ in range(50):
        costs.record_swap(100, 100.0)
    assert not costs.is_swap_cheaper(num_blocks=10, num_tokens=160)


def test_a_setting_forces_one_way() -> None:
    costs = CostModel(block_bytes=1)
    assert costs.prefers_swap("swap", 1000, 1)
    assert not costs.prefers_swap("recompute", 1, 1_000_000)


def test_decoding_steps_say_nothing_about_prefill() -> None:
    costs = CostModel(block_bytes=1)
    before = costs.prefill_tokens_per_s
    costs.record_prefill(40, 30, 1.0)
    costs.record_prefill(8, 0, 1.0)
    assert costs.prefill_tokens_per_s == before


def request(name: str, priority: Priority, arrival: int) -> Request:
    made = Request(name, [1], SamplingParams(seed=0), TOKENS, max_tokens=1, priority=priority)
    made.level, made.arrival = PRIORITIES.index(priority), arrival
    return made


def test_the_latest_of_the_lowest_class_goes_first_and_equals_stay() -> None:
    running = [
        request("a", "priority", 0), request("b", "default", 1), request("c", "flex", 2), request("d", "flex", 3)
    ]  # fmt: skip
    newcomer = request("e", "default", 4)
    assert [r.request_id for r in choose_displaced(running, newcomer, PRIORITIES.index("default"))] == ["d", "c"]


def test_a_request_that_has_aged_into_a_class_is_protected_by_it() -> None:
    aged = request("a", "flex", 0)
    aged.level = PRIORITIES.index("default")
    assert choose_displaced([aged], request("b", "default", 1), PRIORITIES.index("default")) == []
