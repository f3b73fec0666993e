"""A model-free engine: block contents are hashes of the tokens before them, so a lost or mixed-up block is noticed.

Each slot holds the chain hash of all tokens up to its own, computed from the slot before it as a model would compute
K and V from what it attends to. A draw is a function of the last slot, and the memory must agree with the tokens.
"""

from __future__ import annotations

import random
from collections.abc import Sequence as Seq
from dataclasses import replace

from engine.api import Output, Priority, SamplingParams, TokenLogprob
from engine.block_manager import BlockManager
from engine.config import EngineConfig
from engine.errors import RequestFailed
from engine.plan import Draw, Drawn, Plan, PlannedRow, StepResult
from engine.preemption import CostModel
from engine.prefix_cache import root_key
from engine.request import Request, TokenFacts
from engine.scheduler import Scheduler
from engine.step import Step

VOCABULARY = [bytes([97 + i % 26]) for i in range(1000)]
TOKENS = TokenFacts(VOCABULARY, frozenset())
EMPTY_SLOT = None
GARBAGE = -1


def chain(previous: int, token_id: int) -> int:
    return hash((previous, token_id)) & 0xFFFFFFFF


def chain_of(token_ids: Seq[int]) -> int:
    value = 0
    for token_id in token_ids:
        value = chain(value, token_id)
    return value


def next_token(value: int, draw: Draw) -> int:
    return hash((value, draw.seed, draw.sequence_index if draw.params.n > 1 else 0)) % len(VOCABULARY)


def solo_output(prompt: list[int], num_tokens: int, seed: int = 0, index: int = 0) -> list[int]:
    """What an undisturbed run generates."""
    value, output = chain_of(prompt), []
    for _ in range(num_tokens):
        token_id = hash((value, seed, index)) % len(VOCABULARY)
        output.append(token_id)
        value = chain(value, token_id)
    return output


class MemoryRunner:
    """Runs plans against arrays of slots, in the order that the block manager promises."""

    def __init__(self, num_blocks: int, num_swap_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.device: list[list[int | None]] = [[EMPTY_SLOT] * block_size for _ in range(num_blocks)]
        self.cpu: list[list[int | None]] = [[EMPTY_SLOT] * block_size for _ in range(num_swap_blocks)]

    def run(self, plan: Plan) -> StepResult:
        for source, target in plan.transfers.swap_outs:
            self.cpu[target] = list(self.device[source])
        for source, target in plan.transfers.swap_ins:
            self.device[target] = list(self.cpu[source])
        for source, target in plan.transfers.copies:
            self.device[target] = list(self.device[source])
        drawn = []
        for row in plan.rows:
            value = self._slot(row.block_table, row.start - 1) if row.start else 0
            assert value is not EMPTY_SLOT
            assert all(GARBAGE not in self.device[block] for block in row.block_table[: row.start // self.block_size])
            for position, token_id in enumerate(row.token_ids, row.start):
                value = chain(value, token_id)
                self.device[row.block_table[position // self.block_size]][position % self.block_size] = value
            drawn.append(tuple(self._draw(value, draw) for draw in row.draws))
        return StepResult(drawn, {}, 0.001, 0.01, 0.001)

    def spoil(self, plan: Plan) -> None:
        """Leave garbage wherever a broken step may have written."""
        for move in plan.transfers.swap_outs:
            self.cpu[move.target] = [GARBAGE] * self.block_size
        written = [block for row in plan.rows for block in self._blocks_written(row)]
        for block in [*written, *(move.target for move in (*plan.transfers.swap_ins, *plan.transfers.copies))]:
            self.device[block] = [GARBAGE] * self.block_size

    def poison(self, plan: Plan, result: StepResult, poisoned: int) -> StepResult:
        """One row has computed NaN, and with it every row that attends to what it wrote."""
        garbage = self._blocks_written(plan.rows[poisoned])
        drawn = list(result.drawn)
        for number, row in enumerate(plan.rows):
            if number == poisoned or not garbage.isdisjoint(row.block_table):
                garbage |= self._blocks_written(row)
                drawn[number] = tuple(one._replace(failed=True) for one in drawn[number])
        for block in garbage:
            self.device[block] = [GARBAGE] * self.block_size
        return replace(result, drawn=drawn)

    def _blocks_written(self, row: PlannedRow) -> set[int]:
        return set(row.block_table[row.start // self.block_size :])

    def _slot(self, table: Seq[int], position: int) -> int | None:
        return self.device[table[position // self.block_size]][position % self.block_size]

    def _draw(self, value: int, draw: Draw) -> Drawn:
        known = chain_of([*draw.prompt_token_ids, *draw.output_token_ids])
        assert value == known, "the blocks do not hold this sequence's tokens"
        return Drawn(TokenLogprob(next_token(value, draw), -1.0))


class Simulation:
    """Scheduler, block manager and memory in a loop with a clock of its own; invariants are checked at each step."""

    def __init__(self, config: EngineConfig) -> None:
        assert config.num_blocks is not None
        assert config.num_swap_blocks is not None
        self.config = config
        self.manager = BlockManager(
            config.num_blocks, config.num_swap_blocks, config.block_size, config.enable_prefix_cache
        )
        self.costs = CostModel(block_bytes=1 << 16)
        self.scheduler = Scheduler(config, self.manager, self.costs)
        self.runner = MemoryRunner(config.num_blocks, config.num_swap_blocks, config.block_size)
        self.requests: dict[str, Request] = {}
        self.outputs: dict[str, list[Output]] = {}
        self.now = 0.0
        self.num_steps = 0

    def submit(
        self,
        prompt: list[int],
        max_tokens: int,
        *,
        priority: Priority = "default",
        n: int = 1,
        seed: int = 0,
        salt: bytes = b"",
    ) -> Request:
        params = SamplingParams(max_tokens=max_tokens, n=n, seed=seed)
        request = Request(
            f"r{len(self.requests)}",
            prompt,
            params,
            TOKENS,
            max_tokens=max_tokens,
            priority=priority,
            root=root_key("model", salt),
        )
        self.scheduler.submit(request, self.now)
        self.requests[request.request_id] = request
        self.outputs[request.request_id] = []
        return request

    def step(self) -> Step:
        step = self.scheduler.schedule(self.now)
        self.check_writes(step)
        assert not self.finish_step(step, self.runner.run(step.plan))
        return step

    def break_step(self, step: Step) -> list[Request]:
        """The step breaks before it has moved or computed anything: all that it was to write is garbage."""
        self.runner.spoil(step.plan)
        failed = self.scheduler.fail(step, self.now)
        self.check()
        return failed

    def finish_step(self, step: Step, result: StepResult) -> list[Request]:
        """Returns the requests that failed."""
        self.now += 0.01
        self.num_steps += 1
        failed = []
        for request, told in self.scheduler.apply(step, result, self.now):
            if isinstance(told, RequestFailed):
                failed.append(request)
            else:
                self.outputs[request.request_id].append(told)
        self.check()
        return failed

    def run(self, max_steps: int = 100_000) -> None:
        for _ in range(max_steps):
            if not self.scheduler.has_work:
                return
            step = self.step()
            assert step.plan.rows, "work is waiting, but the step computes nothing"
        raise AssertionError("not finished; somebody waits for ever")

    def check(self) -> None:
        self.manager.check([*self.scheduler.running, *self.scheduler.waiting])

    def check_writes(self, step: Step) -> None:
        """Invariant 2: a block with more than one reference, or one that was cached before, is never written."""
        for share in step.shares:
            for number, _ in enumerate(share.sequences):
                row = step.plan.rows[share.first_row + number]
                first = row.start // self.config.block_size
                last = (row.start + len(row.token_ids) - 1) // self.config.block_size
                for index in range(first, last + 1):
                    self._check_written(row.block_table[index], step)

    def _check_written(self, block: int, step: Step) -> None:
        writers = [
            row
            for row in step.plan.rows
            for index in range(
                row.start // self.config.block_size,
                (row.start + len(row.token_ids) - 1) // self.config.block_size + 1,
            )
            if row.block_table[index] == block
        ]
        assert len(writers) == 1, f"block {block} is written by {len(writers)} rows"

    def tokens(self, request: Request, index: int = 0) -> list[int]:
        return [t for output in self.outputs[request.request_id] if output.index == index for t in output.token_ids]


def random_prompt(source: random.Random, length: int) -> list[int]:
    return [source.randrange(len(VOCABULARY)) for _ in range(length)]
