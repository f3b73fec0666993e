"""The picture of the engine agrees with what it did."""

from __future__ import annotations

from engine.trace import CACHED, FREE, HELD, Tracer, inspect_block
from tests.engine.test_scheduler import make


def test_blocks_requests_and_steps_as_they_are() -> None:
    simulation = make(num_blocks=8, num_swap_blocks=4, enable_prefix_cache=True)
    tracer = Tracer()
    request = simulation.submit(list(range(40)), 3, n=2)
    for number in range(2):
        tracer.record_step(simulation.step(), started_at=number, duration_s=0.5)
    trace = tracer.trace(simulation.manager, simulation.scheduler.running)
    assert trace.states == bytes([HELD] * 4 + [FREE] * 4)
    assert trace.references == bytes([2, 2, 1, 1, 0, 0, 0, 0])
    assert trace.swap_states == bytes([FREE] * 4)
    (traced,) = trace.requests
    assert (traced.state, traced.num_computed_tokens) == ("running", 82)
    assert traced.block_tables == tuple(tuple(s.block_table) for s in request.sequences)
    first, second = trace.steps
    assert first.shares == ((request.request_id, 40, 0),)
    assert second.shares == ((request.request_id, 0, 2),)
    assert second.num_copied == 1
    simulation.run()
    assert tracer.trace(simulation.manager, []).states.count(CACHED) == 4


def test_a_block_tells_its_key_and_age() -> None:
    simulation = make(num_blocks=8, enable_prefix_cache=True)
    request = simulation.submit(list(range(20)), 5)
    simulation.step()
    simulation.step()
    full, last = (inspect_block(simulation.manager, block) for block in request.sequences[0].block_table)
    assert full.key == request.sequences[0].block_keys[0].hex()
    assert last.key is None
    assert (full.num_references, full.age_steps) == (1, 2)
    simulation.run()
