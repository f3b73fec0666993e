"""What a token costs, in counts that no machine and no neighbour changes: a regression shows here, not on a clock."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bench.simulation import Loop, fixed_length
from engine.config import EngineConfig
from engine.loading import LoadedModel
from engine.model_runner import ModelRunner
from kernels.backends import backend_for
from tests.engine.models.tiny import SHAPE, VOCAB_SIZE, load_tiny, save_tiny

NUM_LAYERS: Any = SHAPE["num_hidden_layers"]
NUM_BLOCKS = 128
PROMPT_LEN = 20
OUTPUT_LEN = 33

OPERATIONS = ("rms_norm", "rotary_write_kv", "paged_attention", "silu_and_mul", "copy_blocks")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder, "llama")
    return load_tiny(folder)


class CountingModel:
    """Counts forward passes, the tokens that go through them, and the rows of logits."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.layout = model.layout
        self.counts: Counter[str] = Counter()

    def forward(self, token_ids: torch.Tensor, *arguments: Any) -> torch.Tensor:
        self.counts["passes"] += 1
        self.counts["tokens"] += len(token_ids)
        return self._model.forward(token_ids, *arguments)

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        self.counts["logits"] += len(hidden)
        return self._model.compute_logits(hidden)


class TensorOperations(TorchDispatchMode):
    """Counts what torch is asked to do."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))


def make(loaded: LoadedModel, **settings: Any) -> tuple[Loop, CountingModel]:
    model = CountingModel(loaded.model)
    config = EngineConfig(**{"num_blocks": NUM_BLOCKS, "num_swap_blocks": NUM_BLOCKS, "block_size": 8, **settings})
    assert config.num_blocks is not None
    runner = ModelRunner(model, model.layout(config.block_size), config.num_blocks, NUM_BLOCKS, loaded.device)
    return Loop.of(config, runner), model


def submit(loop: Loop, num_requests: int, **params: Any) -> None:
    source = Random(num_requests)
    for _ in range(num_requests):
        prompt = [source.randrange(2, VOCAB_SIZE) for _ in range(PROMPT_LEN)]
        loop.submit(prompt, fixed_length(OUTPUT_LEN, temperature=0.0, **params))


def decoding(loaded: LoadedModel, num_requests: int) -> Loop:
    """A loop whose requests have been decoding for some steps."""
    loop, _ = make(loaded)
    submit(loop, num_requests)
    for _ in range(4):
        loop.step()
    return loop


def test_each_token_is_computed_once_and_drawn_once(loaded: LoadedModel) -> None:
    loop, model = make(loaded)
    submit(loop, 4)
    loop.run()
    assert model.counts == {
        "passes": OUTPUT_LEN,  # the prompts in the first, and the last token is not computed
        "tokens": 4 * (PROMPT_LEN + OUTPUT_LEN - 1),
        "logits": 4 * OUTPUT_LEN,
    }


def test_the_next_turn_computes_its_new_tokens_only(loaded: LoadedModel) -> None:
    loop, model = make(loaded)
    prompt = list(range(2, 2 + PROMPT_LEN))
    first = loop.submit(prompt, fixed_length(OUTPUT_LEN, temperature=0.0))
    loop.run()
    model.counts.clear()
    history = prompt + first.finished_sequences[0].output_token_ids
    second = loop.submit([*history, 3, 4, 5], fixed_length(1, temperature=0.0))
    loop.run()
    num_new = 1 + 3  # the last token drawn was never computed
    assert model.counts["tokens"] == num_new
    assert second.num_cached_tokens == len(history) - 1


@contextmanager
def counted_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    counts: Counter[str] = Counter()
    backend = backend_for("cpu")

    def counting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            return function(*arguments, **options)

        return call

    with monkeypatch.context() as patches:
        for name in OPERATIONS:
            patches.setattr(backend, name, counting(name, getattr(backend, name)))
        yield counts


def test_a_step_calls_each_kernel_once_per_layer(loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = decoding(loaded, 8)
    with counted_kernels(monkeypatch) as counts:
        loop.step()
    assert counts == {
        "rms_norm": 2 * NUM_LAYERS + 1,
        "rotary_write_kv": NUM_LAYERS,
        "paged_attention": NUM_LAYERS,
        "silu_and_mul": NUM_LAYERS,
    }


def test_samples_copy_only_the_block_they_write_into(loaded: LoadedModel) -> None:
    """A prompt of 20 tokens leaves its third block half full; three of four samples copy it, the last one keeps it."""
    loop, model = make(loaded)
    submit(loop, 1, n=4)
    num_copied = 0
    while loop.scheduler.has_work:
        step = loop.scheduler.schedule(loop.now)
        num_copied += len(step.plan.transfers.copies)
        assert step.plan.transfers.num_swapped == 0
        loop.scheduler.apply(step, loop.runner.run(step.plan), loop.now)
    assert num_copied == 3
    assert model.counts["tokens"] == PROMPT_LEN + 4 * (OUTPUT_LEN - 1)


def test_swapping_moves_each_block_out_once_and_in_once(loaded: LoadedModel) -> None:
    loop, model = make(loaded, num_blocks=16, preemption="swap", enable_prefix_cache=False)
    submit(loop, 3)
    moved: Counter[str] = Counter()
    while loop.scheduler.has_work:
        step = loop.scheduler.schedule(loop.now)
        moved["out"] += len(step.plan.transfers.swap_outs)
        moved["in"] += len(step.plan.transfers.swap_ins)
        loop.scheduler.apply(step, loop.runner.run(step.plan), loop.now)
    assert loop.scheduler.preemptions.swap > 0
    assert moved["out"] == moved["in"] > 0
    assert model.counts["tokens"] == 3 * (PROMPT_LEN + OUTPUT_LEN - 1)


def test_torch_is_asked_as_often_for_many_rows_as_for_few(loaded: LoadedModel) -> None:
    found = {}
    for num_requests in (2, 16):
        loop = decoding(loaded, num_requests)
        with TensorOperations() as operations:
            loop.step()
        found[num_requests] = operations.counts
    assert found[2] == found[16]
    assert found[16].total() <= 80, found[16]
    assert not [name for name in found[16] if "copy" in name or "clone" in name or "contiguous" in name]


def python_calls(loop: Loop, num_steps: int) -> int:
    """Python functions called in so many steps, the model's included."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        for _ in range(num_steps):
            loop.step()
    finally:
        sys.setprofile(None)
    return count


def test_a_token_costs_few_calls_of_python(loaded: LoadedModel) -> None:
    few, many = (python_calls(decoding(loaded, count), 8) / 8 for count in (8, 24))
    assert few <= 1150
    assert (many - few) / 16 <= 90


def blocks_kept(loop: Loop) -> tuple[float, int]:
    """Blocks of Python's memory that a token keeps while its request runs, and that the requests keep afterwards."""
    gc.collect()
    before = sys.getallocatedblocks()
    submit(loop, 8)
    for _ in range(4):
        loop.step()
    gc.collect()
    begun = sys.getallocatedblocks()
    for _ in range(16):
        loop.step()
    gc.collect()
    per_token = (sys.getallocatedblocks() - begun) / (8 * 16)
    loop.run()
    gc.collect()
    return per_token, sys.getallocatedblocks() - before


def test_a_token_keeps_little_in_memory_and_a_request_nothing(loaded: LoadedModel) -> None:
    loop, _ = make(loaded)
    for _ in range(2):  # what is cached once is there afterwards
        submit(loop, 8)
        loop.run()
    # Other threads of the process, such as the test runner's, allocate as well, but not each time.
    per_token, left = map(min, zip(*(blocks_kept(loop) for _ in range(4)), strict=True))
    assert per_token <= 1
    assert left <= 100
