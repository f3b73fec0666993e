"""Rules of the scheduler, each in a small case, and all together in a large random one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine.api import PRIORITIES, Priority
from engine.config import EngineConfig
from engine.errors import QueueFull
from engine.request import Request, Status
from tests.engine.simulation import Simulation, random_prompt, solo_output


def make(**settings: Any) -> Simulation:
    defaults: dict[str, Any] = {
        "num_blocks": 64,
        "num_swap_blocks": 0,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 128,
        "enable_prefix_cache": False,
    }
    return Simulation(EngineConfig(**{**defaults, **settings}))


def finish_reasons(simulation: Simulation, request: Request) -> list[str]:
    return [o.finish_reason for o in simulation.outputs[request.request_id] if o.finish_reason]


def test_long_prompt_is_computed_in_chunks_beside_running_streams() -> None:
    simulation = make(max_num_batched_tokens=40)
    stream = simulation.submit([1, 2, 3], max_tokens=20)
    simulation.step()
    simulation.submit(list(range(100)), max_tokens=1)
    for _ in range(3):
        before = stream.num_output_tokens
        step = simulation.step()
        assert stream.num_output_tokens == before + 1
        assert sum(len(row.token_ids) for row in step.plan.rows) <= 40
    simulation.run()


def test_chunks_end_at_block_ends() -> None:
    simulation = make(max_num_batched_tokens=40)
    simulation.submit(list(range(100)), max_tokens=1)
    lengths = [len(simulation.step().plan.rows[0].token_ids) for _ in range(3)]
    assert lengths == [32, 32, 36]


def test_short_prompts_need_not_wait_for_the_end_of_a_long_one() -> None:
    simulation = make(max_num_batched_tokens=64)
    long = simulation.submit(random_prompt(random.Random(1), 300), max_tokens=2)
    short = [simulation.submit([number] * 10, max_tokens=3) for number in range(4)]
    step = simulation.step()
    assert [len(row.token_ids) for row in step.plan.rows] == [32, 10, 10, 10, 2]
    simulation.step()
    assert [request.num_output_tokens for request in short] == [2, 2, 2, 1]
    simulation.run()
    assert simulation.tokens(long) == solo_output(long.prompt_token_ids, 2)


def test_a_long_prompt_shares_with_nobody_of_a_lower_class() -> None:
    simulation = make(max_num_batched_tokens=64)
    simulation.submit([1] * 10, max_tokens=1, priority="flex")
    simulation.submit(list(range(300)), max_tokens=1)
    assert [len(row.token_ids) for row in simulation.step().plan.rows] == [64]


def test_first_come_first_served_within_a_class() -> None:
    simulation = make(max_num_seqs=1)
    first, second = simulation.submit([1], 2), simulation.submit([2], 2)
    simulation.step()
    assert (first.status, second.status) == (Status.RUNNING, Status.WAITING)
    simulation.run()


def test_higher_class_is_admitted_first() -> None:
    simulation = make(max_num_seqs=1)
    flex = simulation.submit([1], 2, priority="flex")
    default = simulation.submit([2], 2)
    priority = simulation.submit([3], 2, priority="priority")
    order = []
    while simulation.scheduler.has_work:
        simulation.step()
        order += [r for r in (flex, default, priority) if r.status is Status.FINISHED and r not in order]
    assert order == [priority, default, flex]


def test_strictly_higher_class_takes_a_slot_and_equals_do_not() -> None:
    simulation = make(max_num_seqs=2)
    low = [simulation.submit([i], 200, priority="flex") for i in range(2)]
    simulation.step()
    high = simulation.submit([9], 5, priority="priority")
    simulation.step()
    assert high.num_output_tokens == 1
    assert [request.num_preemptions for request in low] == [0, 1]
    simulation.run()
    equals = make(max_num_seqs=2)
    requests = [equals.submit([i], 50) for i in range(3)]
    equals.run()
    assert sum(request.num_preemptions for request in requests) == 0


def test_nobody_is_preempted_for_a_newcomer_that_could_not_run_anyway() -> None:
    simulation = make(num_blocks=10)
    simulation.submit([1] * 100, 20, priority="priority")
    low = simulation.submit([2] * 16, 10, priority="flex")
    simulation.step()
    simulation.submit([3] * 100, 20, priority="priority")
    simulation.step()
    assert low.num_preemptions == 0
    simulation.run()


@pytest.mark.parametrize("preemption", ["swap", "recompute"])
@pytest.mark.parametrize("num_swap_blocks", [0, 1, 16])
@pytest.mark.parametrize("cache", [False, True])
def test_preempted_requests_lose_and_repeat_nothing(preemption: str, num_swap_blocks: int, cache: bool) -> None:
    simulation = make(num_blocks=7, num_swap_blocks=num_swap_blocks, preemption=preemption, enable_prefix_cache=cache)
    prompts = [[i] * 34 for i in (1, 2)]
    requests = [simulation.submit(prompt, 35) for prompt in prompts]
    simulation.run()
    assert sum(request.num_preemptions for request in requests) > 0
    expected_kind = "swap" if preemption == "swap" and num_swap_blocks == 16 else "recompute"
    assert getattr(simulation.scheduler.preemptions, expected_kind) > 0
    for request, prompt in zip(requests, prompts, strict=True):
        assert simulation.tokens(request) == solo_output(prompt, 35)


def test_equal_requests_beyond_the_cache_do_not_play_ping_pong() -> None:
    simulation = make(num_blocks=32)
    requests = [simulation.submit([i] * 64, 64) for i in range(6)]
    simulation.run()
    assert max(request.num_preemptions for request in requests) <= 2
    assert all(finish_reasons(simulation, request) == ["length"] for request in requests)


def test_a_preempted_request_comes_back_before_new_ones_of_its_class() -> None:
    simulation = make(num_blocks=7)
    simulation.submit([1] * 34, 35)
    preempted = simulation.submit([2] * 34, 35)
    while preempted.num_preemptions == 0:
        simulation.step()
    newcomer = simulation.submit([3] * 34, 35)
    while preempted.status is not Status.RUNNING:
        simulation.step()
        assert newcomer.status is Status.WAITING
    simulation.run()


def test_waiting_requests_age_into_the_next_class_but_never_above() -> None:
    simulation = make(max_num_seqs=1, ageing_s=1.0)
    running = simulation.submit([1], 300)
    simulation.step()
    old_flex = simulation.submit([2], 2, priority="flex")
    simulation.now += 1.5
    newer_default = simulation.submit([3], 2)
    priority = simulation.submit([4], 2, priority="priority")
    simulation.step()
    assert old_flex.level == PRIORITIES.index("default")
    assert running.num_preemptions == 1, "only the true priority request may displace"
    order = []
    while simulation.scheduler.has_work:
        simulation.step()
        order += [r for r in (old_flex, newer_default, priority) if r.status is Status.FINISHED and r not in order]
    assert order == [priority, old_flex, newer_default]


def test_queue_is_bounded() -> None:
    simulation = make(max_num_waiting=2)
    for _ in range(2):
        simulation.submit([1], 1)
    with pytest.raises(QueueFull):
        simulation.submit([1], 1)
    simulation.run()


def test_abort_returns_every_block_in_every_state() -> None:
    simulation = make(num_blocks=7, num_swap_blocks=7, preemption="swap")
    running, swapped = simulation.submit([1] * 34, 35), simulation.submit([2] * 34, 35)
    while not swapped.is_swapped_out:
        simulation.step()
    waiting = simulation.submit([3] * 34, 35)
    step = simulation.scheduler.schedule(simulation.now)
    for request in (running, swapped, waiting):
        simulation.scheduler.abort(request)  # while the step is running
    simulation.finish_step(step, simulation.runner.run(step.plan))
    device, cpu = simulation.manager.counts()
    assert (device.free, cpu.free) == (7, 7)
    assert not simulation.scheduler.has_work


def test_equal_prompts_of_one_step_are_computed_once() -> None:
    simulation = make(enable_prefix_cache=True)
    prompt = list(range(50))
    first, second = simulation.submit(prompt, 5), simulation.submit(prompt, 5)
    step = simulation.step()
    assert [len(row.token_ids) for row in step.plan.rows] == [50, 2]
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 48)
    simulation.run()
    assert simulation.tokens(first) == simulation.tokens(second) == solo_output(prompt, 5)


def test_second_turn_reuses_the_answer_to_the_last_computed_token() -> None:
    simulation = make(enable_prefix_cache=True)
    prompt = list(range(20))
    first = simulation.submit(prompt, 21)
    simulation.run()
    history = [*prompt, *simulation.tokens(first)]
    second = simulation.submit([*history, 7, 8, 9], 4)
    simulation.run()
    assert second.num_cached_tokens == len(history) - 1, "all but the token that was drawn last"
    assert simulation.tokens(second) == solo_output([*history, 7, 8, 9], 4)


@pytest.mark.parametrize(("length", "cached"), [(31, 30), (32, 31), (33, 32)])
def test_a_prompt_cached_whole_still_computes_its_last_token(length: int, cached: int) -> None:
    simulation = make(enable_prefix_cache=True)
    prompt = list(range(length))
    for expected in (0, cached, cached):
        request = simulation.submit(prompt, 3)
        simulation.run()
        assert request.num_cached_tokens == expected
        assert simulation.tokens(request) == solo_output(prompt, 3)


def test_salts_never_share() -> None:
    simulation = make(enable_prefix_cache=True)
    prompt = list(range(40))
    cached = []
    for salt in (b"a", b"b", b"a"):
        request = simulation.submit(prompt, 2, salt=salt)
        simulation.run()
        cached.append(request.num_cached_tokens)
    assert cached == [0, 0, 39]


def test_samples_share_the_prompt_and_copy_on_write() -> None:
    simulation = make()
    prompt = list(range(40))
    request = simulation.submit(prompt, 20, n=3)
    simulation.step()
    tables = [list(sequence.block_table) for sequence in request.sequences]
    assert tables[0] == tables[1] == tables[2]
    step = simulation.step()
    assert len(step.plan.transfers.copies) == 2, "the last one to write keeps the block"
    simulation.run()
    for index in range(3):
        assert simulation.tokens(request, index) == solo_output(prompt, 20, index=index)


@pytest.mark.parametrize("preemption", ["swap", "recompute"])
def test_samples_survive_preemption(preemption: str) -> None:
    simulation = make(num_blocks=12, num_swap_blocks=12, preemption=preemption)
    prompts = [[i] * 20 for i in (1, 2)]
    requests = [simulation.submit(prompt, 30, n=3) for prompt in prompts]
    simulation.run()
    assert sum(request.num_preemptions for request in requests) > 0
    for request, prompt in zip(requests, prompts, strict=True):
        for index in range(3):
            assert simulation.tokens(request, index) == solo_output(prompt, 30, index=index)


def test_evicted_prefixes_come_back_from_the_cpu_pool() -> None:
    simulation = make(num_blocks=8, num_swap_blocks=32, enable_prefix_cache=True)
    prompt = list(range(64))
    simulation.submit(prompt, 2)
    simulation.run()
    simulation.submit([5] * 100, 2)
    simulation.run()
    again = simulation.submit(prompt, 2)
    simulation.run()
    assert again.num_cached_tokens == 63
    assert simulation.tokens(again) == solo_output(prompt, 2)


@pytest.mark.parametrize("seed", range(4))
def test_thousands_of_random_requests(seed: int) -> None:
    """Mixed classes, lengths, sample counts, shared prefixes and aborts: every step progresses, everybody is served."""
    source = random.Random(seed)
    simulation = make(
        num_blocks=40,
        num_swap_blocks=(0, 5, 40, 100)[seed],
        enable_prefix_cache=seed != 1,
        preemption=("auto", "auto", "swap", "recompute")[seed],
        max_num_waiting=10_000,
        ageing_s=5.0,
    )
    prefixes = [random_prompt(source, length) for length in (10, 37, 80, 160)]
    live: list[Request] = []
    aborted: set[str] = set()
    num_submitted = 0
    while num_submitted < 700 or simulation.scheduler.has_work:
        while num_submitted < 700 and len(simulation.scheduler.waiting) < 10 and source.random() < 0.7:
            live.append(_submit_random(simulation, source, prefixes))
            num_submitted += 1
        step = simulation.scheduler.schedule(simulation.now)
        assert step.plan.rows or not simulation.scheduler.has_work
        simulation.check_writes(step)
        if source.random() < 0.05 and live:
            victim = source.choice(live)
            if victim.status is not Status.FINISHED:
                simulation.scheduler.abort(victim)
                aborted.add(victim.request_id)
        assert not simulation.finish_step(step, simulation.runner.run(step.plan))
        live = [request for request in live if request.status is not Status.FINISHED]
    for request in simulation.requests.values():
        if request.request_id in aborted:
            continue
        for index in range(request.params.n):
            expected = solo_output(request.prompt_token_ids, request.max_tokens, request.seed, index)
            assert simulation.tokens(request, index) == expected
    device, cpu = simulation.manager.counts()
    assert (device.held, device.in_transfer, cpu.held, cpu.in_transfer) == (0, 0, 0, 0)


def test_who_reads_a_row_of_nan_within_the_same_step_starts_over() -> None:
    simulation = make(enable_prefix_cache=True)
    source = random.Random(1)
    prompt = random_prompt(source, 200)
    first, reader = simulation.submit(prompt[:32], 3), simulation.submit(prompt, 3)
    step = simulation.scheduler.schedule(simulation.now)
    assert [len(row.draws) for row in step.plan.rows] == [1, 0]
    result = simulation.runner.run(step.plan)
    failed = simulation.finish_step(step, simulation.runner.poison(step.plan, result, poisoned=0))
    later = simulation.submit(prompt, 3)
    simulation.run()
    assert failed == [first]
    assert simulation.tokens(reader) == simulation.tokens(later) == solo_output(prompt, 3)


@pytest.mark.parametrize("seed", range(4))
def test_broken_steps_and_rows_of_nan_spoil_nobody_elses_answer(seed: int) -> None:
    """Blocks that a broken step was to fill or move are never read again, in whichever tier and table they are."""
    source = random.Random(seed)
    simulation = make(
        num_blocks=40,
        num_swap_blocks=(0, 5, 40, 100)[seed],
        max_num_batched_tokens=48,
        enable_prefix_cache=True,
        preemption=("auto", "swap", "swap", "auto")[seed],
    )
    prefixes = [random_prompt(source, length) for length in (10, 37, 80)]
    live: list[Request] = []
    failed: list[Request] = []
    aborted: list[Request] = []
    num_submitted = 0
    while num_submitted < 600 or simulation.scheduler.has_work:
        while num_submitted < 600 and len(simulation.scheduler.waiting) < 6 and source.random() < 0.7:
            live.append(_submit_random(simulation, source, prefixes))
            num_submitted += 1
        step = simulation.scheduler.schedule(simulation.now)
        simulation.check_writes(step)
        if source.random() < 0.1 and live:
            aborted.append(source.choice(live))
            simulation.scheduler.abort(aborted[-1])
        if source.random() < 0.08:
            failed += simulation.break_step(step)
        else:
            result = simulation.runner.run(step.plan)
            drawing = [number for number, row in enumerate(step.plan.rows) if row.draws]
            if drawing and source.random() < 0.08:
                result = simulation.runner.poison(step.plan, result, source.choice(drawing))
            failed += simulation.finish_step(step, result)
        live = [request for request in live if request.status is not Status.FINISHED]
    ended_early = {request.request_id for request in (*failed, *aborted)}
    assert 50 < len(ended_early) < len(simulation.requests) - 50
    for request in simulation.requests.values():
        if request.request_id not in ended_early:
            for index in range(request.params.n):
                expected = solo_output(request.prompt_token_ids, request.max_tokens, request.seed, index)
                assert simulation.tokens(request, index) == expected
    device, cpu = simulation.manager.counts()
    assert (device.held, device.in_transfer, cpu.held, cpu.in_transfer) == (0, 0, 0, 0)


def _submit_random(simulation: Simulation, source: random.Random, prefixes: list[list[int]]) -> Request:
    n = source.choice((1, 1, 1, 1, 2, 3))
    prefix = source.choice(prefixes)
    prompt = prefix[: source.randrange(len(prefix) + 1)] + random_prompt(source, source.randrange(1, 30))
    priority: Priority = source.choice(PRIORITIES)
    return simulation.submit(
        prompt,
        source.randrange(1, 60),
        priority=priority,
        n=n,
        seed=source.randrange(100),
        salt=source.choice((b"", b"x")),
    )
