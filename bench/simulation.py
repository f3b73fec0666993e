"""The engine's own scheduler and block manager in a plain loop, without tasks, mailboxes or, mostly, a model."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Protocol

from engine.api import Output, Priority, SamplingParams, TokenLogprob
from engine.block_manager import BlockManager
from engine.config import EngineConfig
from engine.plan import Draw, Drawn, Plan, StepResult
from engine.preemption import CostModel
from engine.prefix_cache import root_key
from engine.request import Request, TokenFacts
from engine.scheduler import Scheduler
from engine.stats import Occupancy, StatsRecorder
from engine.step import Step

VOCAB_SIZE = 1 << 17
_TOKENS = TokenFacts([b" word"] * VOCAB_SIZE, frozenset())
_BLOCK_BYTES = 1 << 20


class Runner(Protocol):
    """What the engine's model thread does with a plan."""

    def run(self, plan: Plan) -> StepResult: ...


class RandomTokens:
    """Stands in for a model: draws tokens at random, in no time."""

    def __init__(self, source: Random) -> None:
        self._source = source

    def run(self, plan: Plan) -> StepResult:
        return StepResult([tuple(map(self._draw, row.draws)) for row in plan.rows], {}, 0.0, 0.0, 0.0)

    def _draw(self, draw: Draw) -> Drawn:
        return Drawn(TokenLogprob(self._source.randrange(VOCAB_SIZE), 0.0))


class Loop:
    """Scheduler, block manager and runner. Time is whatever the caller says.

    Args:
        config: with ``num_blocks`` and ``num_swap_blocks`` set.
    """

    def __init__(self, config: EngineConfig, runner: Runner) -> None:
        assert config.num_blocks is not None
        assert config.num_swap_blocks is not None
        self.manager = BlockManager(
            config.num_blocks, config.num_swap_blocks, config.block_size, config.enable_prefix_cache
        )
        self.scheduler = Scheduler(config, self.manager, CostModel(_BLOCK_BYTES))
        self.runner = runner
        self.now = 0.0
        self._recorder = StatsRecorder(0.0)
        self._num_requests = 0

    def submit(self, prompt: Sequence[int], params: SamplingParams, priority: Priority = "default") -> Request:
        """Queue a prompt whose answer has ``params.max_tokens`` tokens."""
        assert params.max_tokens is not None
        request = Request(
            str(self._num_requests),
            list(prompt),
            params,
            _TOKENS,
            max_tokens=params.max_tokens,
            priority=priority,
            root=root_key("model", b""),
        )
        self._num_requests += 1
        self.scheduler.submit(request, self.now)
        return request

    def step(self) -> Step:
        """Schedule, run, apply."""
        step = self.scheduler.schedule(self.now)
        self.apply(step, self.runner.run(step.plan))
        return step

    def apply(self, step: Step, result: StepResult) -> list[tuple[Request, Output]]:
        told = self.scheduler.apply(step, result, self.now)
        return [(request, output) for request, output in told if isinstance(output, Output)]

    def run(self) -> None:
        while self.scheduler.has_work:
            self.step()

    def occupancy(self) -> Occupancy:
        return self._recorder.snapshot(self.scheduler, self.manager, self.now).occupancy


def random_prompt(source: Random, num_tokens: int) -> list[int]:
    return [source.randrange(VOCAB_SIZE) for _ in range(num_tokens)]


def fixed_length(num_tokens: int, **params: object) -> SamplingParams:
    """Sampling with an answer of exactly so many tokens."""
    return SamplingParams(max_tokens=num_tokens, ignore_eos=True, seed=0, **params)  # type: ignore[arg-type]
