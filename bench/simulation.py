"""The engine's own scheduler and block manager in a plain loop, without tasks, mailboxes or, mostly, a model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import sub
from random import Random
from typing import Protocol

from engine.api import Priority, SamplingParams, TokenLogprob
from engine.block_manager import BlockManager
from engine.config import EngineConfig
from engine.plan import Draw, Drawn, Plan, StepResult
from engine.preemption import CostModel
from engine.prefix_cache import root_key
from engine.request import Request, Status, TokenFacts
from engine.scheduler import Scheduler
from engine.stats import Occupancy, StatsRecorder

VOCAB_SIZE = 1 << 15
"""Of prompts and drawn tokens: ids that the demo model has, too."""

_TOKENS = TokenFacts([b" word"] * (2 * VOCAB_SIZE), frozenset())
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
        if draw.num_candidates:
            return self._candidates(draw.num_candidates)
        return Drawn(TokenLogprob(self._source.randrange(VOCAB_SIZE), 0.0))

    def _candidates(self, count: int) -> Drawn:
        """For a beam: log-probabilities that fall off like a model's, with one clear favourite most of the time."""
        best = -self._source.expovariate(1.0)
        gaps = [self._source.expovariate(0.5) for _ in range(count)]
        top = tuple(TokenLogprob(self._source.randrange(VOCAB_SIZE), lp) for lp in accumulate(gaps, sub, initial=best))
        return Drawn(top[0], top[:count])


class Loop:
    """Scheduler, block manager and runner. The clock goes on by what the runner says that its work took."""

    def __init__(self, manager: BlockManager, scheduler: Scheduler, runner: Runner) -> None:
        self.manager = manager
        self.scheduler = scheduler
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

    @classmethod
    def of(cls, config: EngineConfig, runner: Runner) -> Loop:
        """The engine's own. The configuration must say how many blocks there are."""
        assert config.num_blocks is not None
        assert config.num_swap_blocks is not None
        manager = BlockManager(config.num_blocks, config.num_swap_blocks, config.block_size, config.enable_prefix_cache)
        return cls(manager, Scheduler(config, manager, CostModel(_BLOCK_BYTES)), runner)

    def step(self) -> list[Request]:
        """Schedule, run, apply; the requests that have ended."""
        step = self.scheduler.schedule(self.now)
        result = self.runner.run(step.plan)
        self.now += result.transfer_s + result.model_s + result.sample_s
        self.scheduler.apply(step, result, self.now)
        return [share.request for share in step.shares if share.request.status is Status.FINISHED]

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
