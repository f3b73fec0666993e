"""The reserving systems hold what they say, and join when they may."""

from random import Random

import pytest

from bench.baselines import FASTER_TRANSFORMER, ORCA_MAX, ORCA_ORACLE, ORCA_POW2, PAGED, Policy
from bench.simulation import Loop, RandomTokens, fixed_length, random_prompt
from engine.config import EngineConfig

CONFIG = EngineConfig(num_blocks=64, num_swap_blocks=0, block_size=16)
MAX_LEN = 256


def loop_of(policy: Policy) -> Loop:
    return Loop(*policy.build(CONFIG, block_bytes=1, max_len=MAX_LEN), RandomTokens(Random(0)))


@pytest.mark.parametrize(
    ("policy", "num_slots"),
    [(FASTER_TRANSFORMER, 256), (ORCA_MAX, 256), (ORCA_POW2, 128), (ORCA_ORACLE, 64), (PAGED, 32)],
)
def test_a_request_holds_what_its_system_reserves(policy: Policy, num_slots: int):
    loop = loop_of(policy)
    loop.submit(random_prompt(Random(1), 20), fixed_length(33))
    loop.step()
    assert loop.manager.device.counts().held * loop.manager.block_size == num_slots
    while loop.scheduler.has_work:
        ended = loop.step()
    assert [request.num_output_tokens for request in ended] == [33]
    assert loop.manager.device.counts().held == 0


def test_static_batches_wait_for_the_last_to_end():
    loop = loop_of(FASTER_TRANSFORMER)
    for num_output in (2, 10, 1, 1, 1):
        loop.submit([1, 2, 3], fixed_length(num_output))
    loop.step()
    assert (len(loop.scheduler.running), len(loop.scheduler.waiting)) == (2, 1)  # four fit, two have ended at once
    for _ in range(8):
        loop.step()
    assert (len(loop.scheduler.running), len(loop.scheduler.waiting)) == (1, 1)


def test_continuous_batches_let_in_who_fits():
    loop = loop_of(ORCA_MAX)
    for num_output in (2, 10, 1, 1, 1):
        loop.submit([1, 2, 3], fixed_length(num_output))
    loop.step()
    loop.step()
    assert (len(loop.scheduler.running), len(loop.scheduler.waiting)) == (1, 0)
