"""What paging saves and costs: waste, prefix reuse across turns, sharing between samples and beams, bookkeeping time.

    python -m bench.memory [--model smollm2]

All of it runs the engine's scheduler and block manager. Tokens are random, for they do not matter here, except that
beams share what the model makes them share: those are the model's. Paper: Kwon et al., SOSP 2023.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pydoc_data.topics import topics
from random import Random

from bench.lengths import ALPACA, SHAREGPT, Trace
from bench.machine import describe
from bench.simulation import Loop, RandomTokens, Runner, fixed_length, random_prompt
from engine.block_pool import BlockPool
from engine.config import EngineConfig
from engine.loading import LoadedModel, load_model
from engine.model_runner import ModelRunner

BLOCK_SIZE = 16
WIDTHS = (2, 4, 6)
PAPER_SHARING = {  # per cent of blocks saved, from figure 15
    ("parallel", "Alpaca"): "6.1 / 8.5 / 9.8",
    ("parallel", "ShareGPT"): "16.2 - 30.5",
    ("beam", "Alpaca"): "37.6 / 53.1 / 55.2",
    ("beam", "ShareGPT"): "44.3 - 66.3",
}


def settings(num_blocks: int, **others: object) -> EngineConfig:
    return EngineConfig(block_size=BLOCK_SIZE, num_blocks=num_blocks, num_swap_blocks=0, **others)  # type: ignore[arg-type]


def waste(trace: Trace, num_requests: int = 300, num_running: int = 64) -> float:
    """Share of allocated slots that hold nothing, over a run with a steady number of requests."""
    source = Random(0)
    loop = Loop.of(settings(8192, max_num_seqs=num_running, enable_prefix_cache=False), RandomTokens(source))
    for num_input, num_output in trace.samples(num_requests):
        loop.submit(random_prompt(source, num_input), fixed_length(num_output))
    num_allocated = num_empty = 0
    while loop.scheduler.has_work:
        loop.step()
        occupancy = loop.occupancy()
        num_allocated += occupancy.num_slots_allocated
        num_empty += occupancy.num_slots_allocated - occupancy.num_slots_filled
    return num_empty / num_allocated


def chat_hit_rate(num_sessions: int = 16, num_turns: int = 4) -> float:
    """Share of the tokens known from earlier turns, prompts and answers, that later turns did not compute again."""
    source = Random(0)
    loop = Loop.of(settings(16384), RandomTokens(source))
    histories: list[list[int]] = [random_prompt(source, 21) for _ in range(num_sessions)]
    num_reusable = num_reused = 0
    lengths = iter(SHAREGPT.samples(num_sessions * num_turns))
    for turn in range(num_turns):
        requests = []
        for history in histories:
            num_input, num_output = next(lengths)
            requests.append(loop.submit(history + random_prompt(source, num_input), fixed_length(num_output)))
        known = [len(history) - 1 if turn else 0 for history in histories]  # the last token drawn was not computed
        loop.run()
        num_reusable += sum(known)
        num_reused += sum(min(r.num_cached_tokens, k) for r, k in zip(requests, known, strict=True))
        histories = [r.prompt_token_ids + r.finished_sequences[0].output_token_ids for r in requests]
    return num_reused / num_reusable


def saved_blocks(loop: Loop) -> float:
    """Run everything; the share of block-table entries, over all steps, that needed no block of their own."""
    num_entries = num_blocks = 0
    while loop.scheduler.has_work:
        loop.step()
        tables = [s.block_table for request in loop.scheduler.running for s in request.sequences]
        num_entries += sum(map(len, tables))
        num_blocks += len({block for table in tables for block in table})
    return 1 - num_blocks / num_entries


def saved_by_parallel_sampling(trace: Trace, n: int, num_requests: int = 400) -> float:
    source = Random(0)
    loop = Loop.of(settings(65536, max_num_seqs=256, enable_prefix_cache=False), RandomTokens(source))
    for num_input, num_output in trace.samples(num_requests):
        loop.submit(random_prompt(source, num_input), fixed_length(num_output, n=n))
    return saved_blocks(loop)


def saved_by_beams(trace: Trace, loaded: LoadedModel, width: int, num_requests: int = 6) -> float:
    """Beams of the model over English prose."""
    source, num_blocks = Random(0), 4096
    runner: Runner = ModelRunner(loaded.model, loaded.model.layout(BLOCK_SIZE), num_blocks, 0, loaded.device)
    loop = Loop.of(settings(num_blocks, enable_prefix_cache=False), runner)
    prose = loaded.tokenizer.encode("\n".join(topics.values())[:200_000])
    for num_input, num_output in trace.samples(num_requests):
        start = source.randrange(len(prose) - num_input)
        params = fixed_length(num_output, n=width, use_beam_search=True, temperature=0.0)
        loop.submit(prose[start : start + num_input], params)
    return saved_blocks(loop)


def step_times(num_running: int, num_steps: int = 50) -> tuple[float, float]:
    """Median seconds to schedule one step, and to apply its result, while all requests generate."""
    source = Random(0)
    loop = Loop.of(settings(16384, max_num_seqs=num_running, max_num_batched_tokens=65536), RandomTokens(source))
    for _ in range(num_running):
        loop.submit(random_prompt(source, 161), fixed_length(338))
    loop.step()
    schedule_s, apply_s = [], []
    for _ in range(num_steps):
        start = time.perf_counter()
        step = loop.scheduler.schedule(loop.now)
        scheduled = time.perf_counter()
        result = loop.runner.run(step.plan)
        computed = time.perf_counter()
        loop.scheduler.apply(step, result, loop.now)
        schedule_s.append(scheduled - start)
        apply_s.append(time.perf_counter() - computed)
    return statistics.median(schedule_s), statistics.median(apply_s)


def pool_operations_per_s(num_blocks: int = 16384) -> float:
    """Blocks taken and given back again, each counted once."""
    pool = BlockPool(num_blocks, on_evict=lambda _: None)
    start = time.perf_counter()
    for block in [pool.take() for _ in range(num_blocks)]:
        pool.release(block)
    return 2 * num_blocks / (time.perf_counter() - start)


def print_sharing(kind: str, trace: Trace, measure: Callable[[int], float], widths: Sequence[int] = WIDTHS) -> None:
    saved = " / ".join(f"{100 * measure(width):.1f}" for width in widths)
    paper = PAPER_SHARING[kind, trace.name]
    print(
        f"blocks saved, {kind} {'/'.join(map(str, widths))}, {trace.name}: {saved} %   (paper: {paper} %)", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2", help="whose beams to follow")
    model = parser.parse_args().model
    print(f"on {describe()}; blocks of {BLOCK_SIZE} tokens")
    for trace in (SHAREGPT, ALPACA):
        print(f"waste, {trace.name}: {100 * waste(trace):.2f} %   (paper: 3.7 %, ShareGPT)", flush=True)
    print(f"prefix reuse in a chat of 4 turns: {100 * chat_hit_rate():.2f} % of what could be reused", flush=True)
    for trace in (ALPACA, SHAREGPT):
        print_sharing("parallel", trace, partial(saved_by_parallel_sampling, trace))
    for num_running in (32, 64, 128, 256):
        schedule_s, apply_s = step_times(num_running)
        print(f"step of {num_running} running: schedule {1e3 * schedule_s:.2f} ms, apply {1e3 * apply_s:.2f} ms")
    print(f"block pool: {pool_operations_per_s():,.0f} operations per second", flush=True)
    loaded = load_model(EngineConfig(model=model))
    for trace in (ALPACA, SHAREGPT):
        print_sharing("beam", trace, partial(saved_by_beams, trace, loaded))


if __name__ == "__main__":
    main()
