"""A short play on a tiny stage: the real scheduler and block manager over few blocks, with letters for a model.

It shows within a minute what paged memory is for, on any machine and without disturbing who is being served. The
tokens mean nothing; the blocks, their sharing, copies and moves are what the engine does with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.api import PRIORITIES, Priority, SamplingParams, TokenLogprob
from engine.block_manager import BlockManager
from engine.config import EngineConfig
from engine.errors import RequestFailed
from engine.plan import Draw, Drawn, StepResult
from engine.preemption import CostModel
from engine.request import Request, TokenFacts
from engine.scheduler import Scheduler
from engine.stats import EngineStats, StatsRecorder
from engine.step import Step
from engine.trace import EngineTrace, TracedBlock, Tracer, inspect_block

Scene = Literal["paging", "sharing", "copy_on_write", "preemption", "reuse", "end"]

NUM_BLOCKS, NUM_SWAP_BLOCKS = 40, 16

_CONFIG = EngineConfig(
    num_blocks=NUM_BLOCKS,
    num_swap_blocks=NUM_SWAP_BLOCKS,
    max_model_len=NUM_BLOCKS * 16,
    max_num_seqs=16,
    max_num_batched_tokens=48,
    preemption="swap",
)
_LETTERS = TokenFacts([bytes([value]) for value in range(256)], frozenset())
_RULES = [*b"You are a patient guide. Use short sentences, and give one example. "]
"""What the questions have in common: four full blocks and a part of the fifth."""


@dataclass(frozen=True, slots=True)
class _Cue:
    """What happens before one step: a scene begins, or somebody asks."""

    step: int
    scene: Scene
    name: str
    text: str
    num_output_tokens: int
    priority: Priority = "default"
    num_answers: int = 1


_SCRIPT = (
    _Cue(0, "paging", "question-1", "What is a token?", 100),
    _Cue(18, "sharing", "question-2", "Why blocks of keys and values?", 76, "flex"),
    _Cue(24, "sharing", "question-3", "Who may share a block?", 76, "flex"),
    _Cue(30, "sharing", "question-4", "And what is a block table?", 70, "flex"),
    _Cue(46, "copy_on_write", "three-answers", "Tell a short story.", 30, "default", 3),
    _Cue(66, "preemption", "urgent", "Hurry! " * 20, 30, "priority"),
    _Cue(124, "reuse", "question-5", "What is a token? And a block?", 24),
)


class Demonstration:
    """Plays itself, a step for each call; once it is over, a step does nothing.

    Args:
        now: on the monotonic clock; later times are of the same one.

    Attributes:
        scene: what is to be seen at the moment.
    """

    def __init__(self, now: float) -> None:
        self.scene: Scene = _SCRIPT[0].scene
        self._manager = BlockManager(NUM_BLOCKS, NUM_SWAP_BLOCKS, _CONFIG.block_size, _CONFIG.enable_prefix_cache)
        self._scheduler = Scheduler(_CONFIG, self._manager, CostModel(block_bytes=1))
        self._stats = StatsRecorder(now)
        self._tracer = Tracer()
        self._num_steps = 0
        self._now = now

    @property
    def is_over(self) -> bool:
        return self._num_steps > _SCRIPT[-1].step and not self._scheduler.has_work

    def step(self, now: float) -> None:
        if self.is_over:
            self.scene = "end"
            return
        for cue in _SCRIPT:
            if cue.step == self._num_steps:
                self.scene = cue.scene
                self._scheduler.submit(_request(cue), now)
        step = self._scheduler.schedule(now)
        result = StepResult([tuple(map(_draw, row.draws)) for row in step.plan.rows], {}, 0.0, now - self._now, 0.0)
        self._apply(step, result, now)
        self._tracer.record_step(step, self._now, now - self._now)
        self._num_steps += 1
        self._now = now

    def _apply(self, step: Step, result: StepResult, now: float) -> None:
        for request, told in self._scheduler.apply(step, result, now):
            if not isinstance(told, RequestFailed):
                self._stats.record_output(request, told, now)
        self._stats.record_step(step, result, 0.0, 0.0, now)

    def stats(self) -> EngineStats:
        return self._stats.snapshot(self._scheduler, self._manager, self._now)

    def trace(self) -> EngineTrace:
        return self._tracer.trace(self._manager, [*self._scheduler.running, *self._scheduler.waiting])

    def inspect_block(self, block: int) -> TracedBlock:
        """
        Raises:
            IndexError: there is no such block.
        """
        return inspect_block(self._manager, block)


def _request(cue: _Cue) -> Request:
    num_tokens = cue.num_output_tokens
    params = SamplingParams(max_tokens=num_tokens, n=cue.num_answers, seed=PRIORITIES.index(cue.priority))
    prompt = [*_RULES, *cue.text.encode()]
    return Request(cue.name, prompt, params, _LETTERS, max_tokens=num_tokens, priority=cue.priority)


def _draw(draw: Draw) -> Drawn:
    """Answers of one question differ, so that they cannot stay shared."""
    return Drawn(TokenLogprob(ord("a") + (draw.position + 7 * draw.sequence_index) % 26, 0.0))
