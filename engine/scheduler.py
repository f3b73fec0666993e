"""What each step computes, for whom, and who must make room.

``schedule`` makes a plan, the model thread runs it, ``apply`` takes the result. Between the two, requests may only be
submitted or aborted. The scheduler knows no clock, model or socket: time is an argument.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import merge

from engine.api import PRIORITIES, Output, TokenLogprob
from engine.beam import BeamSearch
from engine.block_manager import BlockManager
from engine.config import EngineConfig
from engine.continuation import beam_outputs, continue_sequence, ranked_outputs
from engine.errors import QueueFull, RequestFailed
from engine.plan import Drawn, PlannedRow, StepResult, has_failed
from engine.preemption import CostModel, choose_displaced
from engine.request import Request, Sequence, Status
from engine.step import Share, Step, is_decoding, num_tokens_left, plan_row, share_of_budget

MAX_STALL_S = 0.2
"""While streams are running, a step takes no more prompt tokens than are computed in about this time."""

AGEING_INTERVAL_S = 0.5
"""How often waiting requests are looked through for those that have waited long enough to rise a class."""


@dataclass(slots=True)
class PreemptionCounts:
    swap: int = 0
    recompute: int = 0


class Scheduler:
    """Continuous batching with priority classes over one block manager.

    Args:
        config: limits; sizes must be resolved (no None).
        manager: gives and takes blocks.
        costs: measured speeds, for the way of preemption and for the size of prompt chunks beside running streams.
    """

    def __init__(self, config: EngineConfig, manager: BlockManager, costs: CostModel) -> None:
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.preemptions = PreemptionCounts()
        self._config = config
        self._manager = manager
        self._costs = costs
        self._num_arrived = 0
        self._aged_at = 0.0
        self._is_exclusive = False

    # --- arrival and departure ---

    def submit(self, request: Request, now: float) -> None:
        """Queue a request.

        Raises:
            QueueFull: nothing was queued.
        """
        if len(self.waiting) >= self._config.max_num_waiting:
            raise QueueFull(f"{len(self.waiting)} requests are waiting, which is the limit")
        request.arrival = self._num_arrived
        self._num_arrived += 1
        request.level = PRIORITIES.index(request.priority)
        request.arrived_at = now
        self._wait(request, now)

    def abort(self, request: Request) -> None:
        """End a request in any state. Its blocks can be taken at once: moves and writes run in order."""
        if request.status is not Status.FINISHED:
            self.finish(request)

    def finish(self, request: Request) -> None:
        """Take a request out and give back everything it holds."""
        (self.running if request.status is Status.RUNNING else self.waiting).remove(request)
        for sequence in request.sequences:
            self._manager.release(request, sequence)
        request.sequences = []
        request.status = Status.FINISHED

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.waiting)

    # --- one step ---

    def schedule(self, now: float) -> Step:
        """Plan the next step.

        There is no prefill phase and no decode phase. Requests are visited in order of rank, running and waiting
        alike. A running one gets a share of the token budget and the blocks for it; when blocks run out, the lowest
        ranked running request is preempted, and that is always one not yet visited, or the visited one itself. A
        waiting one is admitted if all it knows fits, if need be in place of running requests of a strictly lower
        class; the first that cannot be admitted ends admission, so nobody overtakes.

        A prompt too long for one step takes at most half of it while others of its class want the rest: their first
        tokens need not wait for its end. Beside a prompt of the highest class, lower ones sit out every other step.
        """
        self._age(now)
        step = Step(self._prefill_budget())
        is_admitting, level = True, 0
        for request in self._in_rank_order():
            if request.level != level:
                self._give_rest(step)
                if level == 0:  # not twice in a row, so that nobody starves
                    self._is_exclusive = step.num_prefill_tokens > 0 and not self._is_exclusive
                    if self._is_exclusive:
                        break
                level = request.level
            if request.status is Status.WAITING:
                is_admitting = is_admitting and step.prefill_budget > 0 and self._admit(request, step, now)
                if not is_admitting:
                    continue
            if request.status is Status.RUNNING:
                self._give_share(request, step, now)
        self._give_rest(step)
        step.plan.transfers = self._manager.take_transfers()
        return step

    def _in_rank_order(self) -> Iterator[Request]:
        """A snapshot: who is preempted during the visit is skipped or visited as waiting, never twice."""
        running = list(self.running)
        if not self.waiting:
            return iter(running)
        waiting = list(self.waiting)
        return merge(running, waiting, key=lambda request: request.rank)

    def _prefill_budget(self) -> int:
        """Tokens left for prompts beside one token for each sequence that is decoding."""
        num_decodes = sum(request.num_sequences for request in self.running if is_decoding(request))
        budget = self._config.max_num_batched_tokens - num_decodes
        if num_decodes == 0:
            return budget
        unnoticed = int(self._costs.prefill_tokens_per_s * MAX_STALL_S)
        return min(budget, max(unnoticed, self._config.block_size))

    def _give_share(self, request: Request, step: Step, now: float) -> None:
        is_decode = is_decoding(request)
        if not is_decode and not request.is_forked:
            self._manager.extend_from_cache(request)
        budget = step.prefill_budget
        is_long = not (is_decode or request.is_forked) and num_tokens_left(request) > step.max_prefill_tokens
        if is_long:
            budget = min(budget, max(step.max_prefill_tokens // 2, self._config.block_size))
        if is_decode:
            num_new_tokens = {sequence.index: 1 for sequence in request.computing_sequences()}
        else:
            num_new_tokens = share_of_budget(request, budget, self._config.block_size)
        if not num_new_tokens or not self._make_room(request, num_new_tokens, step, now):
            return
        sequences = [sequence for sequence in request.computing_sequences() if sequence.index in num_new_tokens]
        share = Share(request, sequences, len(step.plan.rows))
        step.shares.append(share)
        for sequence in sequences:
            num_new = num_new_tokens[sequence.index]
            self._manager.grow(sequence, num_new)
            step.plan.rows.append(self._plan_row(request, sequence, num_new))
        step.count_tokens(sum(num_new_tokens.values()), is_decode)
        if is_long:
            step.held_back.append(share)

    def _give_rest(self, step: Step) -> None:
        """What nobody else of the class has wanted goes to the long prompts after all."""
        for request, (sequence,), row in step.held_back:
            given = len(step.plan.rows[row].token_ids)
            num_new = share_of_budget(request, step.prefill_budget + given, self._config.block_size)[sequence.index]
            num_blocks = self._manager.num_blocks_beyond_table(sequence, num_new)
            if num_blocks <= self._manager.device.num_available:
                self._manager.extend(sequence, num_blocks)
                step.plan.rows[row] = self._plan_row(request, sequence, num_new)
                step.count_tokens(num_new - given, is_decode=False)
        step.held_back.clear()

    def _plan_row(self, request: Request, sequence: Sequence, num_new_tokens: int) -> PlannedRow:
        self._manager.cache_filled_blocks(request, sequence, sequence.num_computed_tokens + num_new_tokens)
        return plan_row(request, sequence, num_new_tokens)

    def apply(self, step: Step, result: StepResult, now: float) -> list[tuple[Request, Output | RequestFailed]]:
        """Take a step's result: count what is computed, append what is drawn, end what is finished.

        Requests that were aborted while the step ran are passed over.
        """
        self._manager.end_step()
        self._costs.record_swap(step.plan.transfers.num_swapped, result.transfer_s)
        self._costs.record_prefill(step.num_prefill_tokens, step.num_decode_tokens, result.model_s)
        failed_rows = {row for row, drawn in enumerate(result.drawn) if has_failed(drawn)}
        told: list[tuple[Request, Output | RequestFailed]] = []
        for share in step.shares:
            if share.request.status is not Status.FINISHED:
                told += ((share.request, news) for news in self._apply_share(share, step, result, failed_rows))
        if failed_rows:
            self._distrust(self._blocks_spoiled(step.plan.rows, failed_rows), set(), now)
        return told

    def fail(self, step: Step, now: float) -> list[Request]:
        """The step broke as a whole: end its requests, and trust no block that it was to fill or to move.

        Returns:
            The requests that ended.
        """
        self._manager.end_step()
        failed = [share.request for share in step.shares if share.request.status is not Status.FINISHED]
        for request in failed:
            self.finish(request)
        transfers = step.plan.transfers
        moved = {move.target for move in (*transfers.swap_ins, *transfers.copies)}
        moved_to_cpu = {move.target for move in transfers.swap_outs}
        written = {block for row in step.plan.rows for block in self._blocks_written(row)}
        self._distrust(written | moved, moved_to_cpu, now)
        return failed

    def _blocks_written(self, row: PlannedRow) -> Iterable[int]:
        return row.block_table[row.start // self._config.block_size :]

    def _blocks_spoiled(self, rows: Iterable[PlannedRow], failed_rows: set[int]) -> set[int]:
        """Written by rows that failed, and by rows that read what those wrote: they come later in the step."""
        spoiled: set[int] = set()
        for number, row in enumerate(rows):
            if number in failed_rows or not spoiled.isdisjoint(row.block_table):
                spoiled.update(self._blocks_written(row))
        return spoiled

    def _distrust(self, device_blocks: set[int], cpu_blocks: set[int], now: float) -> None:
        """Blocks do not hold what was planned: nobody may find them, and who shares one already computes all anew."""
        self._manager.forget(device_blocks, cpu_blocks)
        for request in [*self.running, *self.waiting]:
            if not self._manager.holds_any(request, device_blocks, cpu_blocks):
                continue
            for sequence in request.sequences:
                sequence.num_computed_tokens = 0
            self._release_for_recompute(request)
            if request.status is Status.RUNNING:
                self._return_to_waiting(request, now)

    def _apply_share(
        self, share: Share, step: Step, result: StepResult, failed_rows: set[int]
    ) -> list[Output] | list[RequestFailed]:
        request = share.request
        rows = range(share.first_row, share.first_row + len(share.sequences))
        drawn = [result.drawn[row] for row in rows]
        if not failed_rows.isdisjoint(rows):
            self.finish(request)
            return [RequestFailed("the model gave no usable logits for this request (NaN or infinity)")]
        for sequence, row in zip(share.sequences, rows, strict=True):
            sequence.num_computed_tokens += len(step.plan.rows[row].token_ids)
            request.prompt_logprobs += result.prompt_logprobs.get(row, ())
        outputs = self._continue(request, share.sequences, drawn)
        if not request.sequences:
            self.finish(request)
        return outputs

    def _continue(self, request: Request, sequences: list[Sequence], drawn: list[tuple[Drawn, ...]]) -> list[Output]:
        pairs = [(sequence, row[0]) for sequence, row in zip(sequences, drawn, strict=True) if row]
        if request.beam is not None and pairs:
            return self._continue_beams(request, request.beam, [one.top for _, one in pairs])
        if request.is_sharing_prompt and sequences[0].num_computed_tokens == request.num_prompt_tokens:
            self._fork_from_prompt(request)
            pairs = list(zip(request.sequences, drawn[0], strict=False))
        outputs = []
        for sequence, one in pairs:
            outputs += continue_sequence(request, sequence, one)
            if sequence.finish_reason is not None:
                self._manager.release(request, sequence)
                request.sequences.remove(sequence)
                request.finished_sequences.append(sequence)
        if request.params.is_ranked and not request.sequences:
            outputs += ranked_outputs(request)
        return outputs

    def _continue_beams(
        self, request: Request, beam: BeamSearch, candidates: list[tuple[TokenLogprob, ...]]
    ) -> list[Output]:
        """Each beam of the next step forks from its parent; what no beam continues goes back to the pool."""
        parents = request.sequences
        request.sequences = []
        for index, (parent, token_id) in enumerate(zip(*beam.step(candidates), strict=True)):
            child = request.new_sequence(index)
            child.output_token_ids = [*parents[parent].output_token_ids, token_id]
            self._manager.fork(parents[parent], child)
            request.sequences.append(child)
        for sequence in parents:
            self._manager.release(request, sequence)
        request.is_expanded = request.is_forked = True
        return [] if request.sequences else beam_outputs(request, beam)

    def _fork_from_prompt(self, request: Request) -> None:
        """The prompt is computed: the others share its blocks. Resumed ones go on from there to what they know."""
        leader = request.sequences[0]
        if not request.is_expanded:
            request.expand()
        for sequence in request.sequences[1:]:
            self._manager.fork(leader, sequence)
        request.is_forked = True

    # --- room ---

    def _make_room(self, request: Request, num_new_tokens: dict[int, int], step: Step, now: float) -> bool:
        """Preempt from the lowest rank up until the blocks are there; False if the request itself had to go."""
        while self._manager.num_blocks_to_grow(request, num_new_tokens) > self._manager.device.num_available:
            victim = self.running[-1]
            if victim is request and self._manager.device.counts().in_transfer:
                return False  # blocks come back when this step is over; nothing is lost by waiting for them
            self._preempt(victim, step, now)
            if victim is request:
                return False
        return True

    def _preempt(self, victim: Request, step: Step, now: float) -> None:
        num_blocks = self._manager.num_blocks_held(victim)
        num_tokens = sum(sequence.num_computed_tokens for sequence in victim.computing_sequences())
        wants_swap = num_blocks > 0 and self._costs.prefers_swap(self._config.preemption, num_blocks, num_tokens)
        if wants_swap and self._manager.swap_out(victim):
            self.preemptions.swap += 1
        else:
            self._release_for_recompute(victim)
            self.preemptions.recompute += 1
        self._return_to_waiting(victim, now)
        step.notices.append((victim, "preempted"))

    def _release_for_recompute(self, request: Request) -> None:
        for sequence in request.sequences:
            self._manager.release(request, sequence)
        request.is_forked = False
        request.prompt_logprobs.clear()

    def _return_to_waiting(self, request: Request, now: float) -> None:
        request.num_preemptions += 1
        self.running.remove(request)
        self._wait(request, now)

    def _wait(self, request: Request, now: float) -> None:
        request.status = Status.WAITING
        request.waiting_since = now
        insort(self.waiting, request, key=lambda r: r.rank)

    def _admit(self, request: Request, step: Step, now: float) -> bool:
        if not self._has_slots(request, []) or not self._admit_into_blocks(request):
            displaced = self._find_displaced(request)
            for victim in displaced:
                self._preempt(victim, step, now)
            if not displaced or not self._admit_into_blocks(request):
                return False
        self.waiting.remove(request)
        request.status = Status.RUNNING
        step.notices.append((request, "resumed" if request.was_admitted else "started"))
        request.was_admitted = True
        request.waited_s += now - request.waiting_since
        insort(self.running, request, key=lambda r: r.rank)
        return True

    def _admit_into_blocks(self, request: Request) -> bool:
        return self._manager.admit(request, self._num_headroom_blocks(request), self._num_reserved_blocks())

    def _find_displaced(self, request: Request) -> list[Request]:
        """The fewest running requests of strictly lower class whose slots and blocks let the newcomer really run."""
        needed = self._manager.num_blocks_whole(request) + self._num_headroom_blocks(request)
        available = self._manager.device.num_available - self._num_reserved_blocks()
        displaced: list[Request] = []
        for victim in choose_displaced(self.running, request, PRIORITIES.index(request.priority)):
            displaced.append(victim)
            available += self._manager.num_private_blocks(victim) + self._num_reserved_blocks_of(victim)
            if self._has_slots(request, displaced) and available >= needed:
                return displaced
        return []

    def _has_slots(self, request: Request, displaced: list[Request]) -> bool:
        num_running = sum(r.num_sequences for r in self.running) - sum(r.num_sequences for r in displaced)
        return num_running + request.num_sequences <= self._config.max_num_seqs

    def _num_headroom_blocks(self, request: Request) -> int:
        """Blocks to leave beside what the request knows: it, and those that displaced it once, will grow."""
        if not self.running:
            return 0
        num_growing = sum(r.num_sequences for r in self.running) if request.was_admitted else 0
        return request.num_sequences + num_growing

    def _num_reserved_blocks(self) -> int:
        return sum(self._num_reserved_blocks_of(request) for request in self.running)

    def _num_reserved_blocks_of(self, request: Request) -> int:
        """Blocks promised on admission that a prompt in chunks has not taken yet."""
        if is_decoding(request):
            return 0
        return max(0, self._manager.num_blocks_whole(request) - self._manager.num_blocks_held(request))

    def _age(self, now: float) -> None:
        """Let requests rise one class for each ``ageing_s`` they have waited, at most to the highest."""
        if not self.waiting or now - self._aged_at < AGEING_INTERVAL_S:
            return
        self._aged_at = now
        for request in self.waiting:
            num_risen = int((request.waited_s + now - request.waiting_since) // self._config.ageing_s)
            request.level = max(0, PRIORITIES.index(request.priority) - num_risen)
        self.waiting.sort(key=lambda request: request.rank)
