"""A priority request among many of the lowest class, counted in steps: what it waits is its own prompt, not theirs."""

from __future__ import annotations

from random import Random

import pytest

from engine.api import Priority
from engine.config import EngineConfig
from tests.engine.simulation import Simulation, random_prompt

NUM_STREAMS = 32
PROMPT_LEN = 100
BUDGET = 256


def make(num_blocks: int, num_swap_blocks: int) -> Simulation:
    return Simulation(
        EngineConfig(
            num_blocks=num_blocks,
            num_swap_blocks=num_swap_blocks,
            max_num_seqs=NUM_STREAMS,
            max_num_batched_tokens=BUDGET,
            enable_prefix_cache=False,
        )
    )


def steps_to_first_token(simulation: Simulation, prompt: list[int], priority: Priority) -> int:
    request = simulation.submit(prompt, max_tokens=4, priority=priority)
    num_steps = 0
    while not request.num_output_tokens:
        simulation.step()
        num_steps += 1
    return num_steps


@pytest.mark.parametrize(
    ("num_blocks", "num_swap_blocks"),
    [(2048, 0), (160, 0), (160, 320)],
    ids=["slots are taken", "blocks are taken", "blocks are taken, with a swap pool"],
)
def test_a_priority_request_waits_for_no_flex_stream(num_blocks: int, num_swap_blocks: int) -> None:
    """More flex requests than can run, of prompts longer than a step: at each of 8 moments the answer to a
    priority request begins after as many steps as on an idle engine, and at most one more for the smaller budget."""
    source = Random(0)
    idle = steps_to_first_token(make(num_blocks, 0), random_prompt(source, PROMPT_LEN), "priority")
    assert idle == 1
    simulation = make(num_blocks, num_swap_blocks)
    flex = [
        simulation.submit(random_prompt(source, 20 + 11 * number), max_tokens=60, priority="flex")
        for number in range(NUM_STREAMS + 16)
    ]
    for _ in range(12):
        simulation.step()
    waited = []
    for _ in range(8):
        for _ in range(source.randrange(1, 5)):
            simulation.step()
        assert simulation.scheduler.waiting, "the engine is not saturated"
        waited.append(steps_to_first_token(simulation, random_prompt(source, PROMPT_LEN), "priority"))
    assert max(waited) <= idle + 1
    assert waited.count(idle) >= 4
    simulation.run()
    assert all(request.num_output_tokens == 60 for request in flex)


def test_priority_prompts_have_a_step_to_themselves_but_never_two_in_a_row() -> None:
    source = Random(0)
    simulation = make(2048, 0)
    flex = [simulation.submit(random_prompt(source, 20), max_tokens=200, priority="flex") for _ in range(8)]
    while not all(request.num_output_tokens for request in flex):
        simulation.step()
    for number in range(10):
        told = sum(request.num_output_tokens for request in flex)
        urgent = simulation.submit(random_prompt(source, PROMPT_LEN), max_tokens=1, priority="priority")
        simulation.step()
        assert urgent.num_output_tokens == 1
        is_alone = number % 2 == 0
        assert sum(request.num_output_tokens for request in flex) - told == (0 if is_alone else len(flex))
    simulation.run()
    assert all(request.num_output_tokens == 200 for request in flex)
