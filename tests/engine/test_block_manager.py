"""Block tables, sharing and swapping in any order against slots that remember what was written to them."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.api import SamplingParams
from engine.block_manager import BlockManager
from engine.plan import Plan, PlannedRow
from engine.request import Request, Sequence, Status
from tests.engine.simulation import TOKENS, MemoryRunner, chain_of

BLOCK_SIZE = 8
NUM_BLOCKS = 10


def make_request(prompt: list[int], n: int = 1, name: str = "r") -> Request:
    return Request(name, prompt, SamplingParams(n=n, seed=0), TOKENS, max_tokens=100)


def compute(manager: BlockManager, memory: MemoryRunner, request: Request, num_tokens: int) -> None:
    """One step of one sequence."""
    sequence = request.sequences[0]
    manager.grow(sequence, num_tokens)
    end = sequence.num_computed_tokens + num_tokens
    manager.cache_filled_blocks(request, sequence, end)
    row = PlannedRow(
        sequence.num_computed_tokens, sequence.token_ids(sequence.num_computed_tokens, end), sequence.block_table, ()
    )
    run_step(manager, memory, [row])
    sequence.num_computed_tokens = end


def run_step(manager: BlockManager, memory: MemoryRunner, rows: list[PlannedRow]) -> None:
    memory.run(Plan(manager.take_transfers(), rows))
    manager.end_step()


def test_blocks_are_given_in_order_and_a_prefix_outlives_what_continues_it() -> None:
    manager, memory = BlockManager(6, 0, BLOCK_SIZE, True), MemoryRunner(6, 0, BLOCK_SIZE)
    request = make_request(list(range(20)))
    assert manager.admit(request, 0, 0)
    compute(manager, memory, request, 20)
    assert list(request.sequences[0].block_table) == [0, 1, 2]
    manager.release(request, request.sequences[0])
    assert manager.device.reclaim_order() == [3, 4, 5, 2, 1, 0]


def test_a_block_demoted_and_evicted_in_one_step_is_written_once() -> None:
    """The CPU pool has room for one of the three cached blocks that the newcomer's blocks push out."""
    manager, memory = BlockManager(3, 1, BLOCK_SIZE, True), MemoryRunner(3, 1, BLOCK_SIZE)
    first = make_request(list(range(24)))
    assert manager.admit(first, 0, 0)
    compute(manager, memory, first, 24)
    manager.release(first, first.sequences[0])
    second = make_request(list(range(100, 124)))
    assert manager.admit(second, 0, 0)
    manager.grow(second.sequences[0], 24)
    transfers = manager.take_transfers()
    assert [move.target for move in transfers.swap_outs] == [0]


def test_a_partly_equal_block_is_copied_and_the_original_stays() -> None:
    manager, memory = BlockManager(6, 0, BLOCK_SIZE, True), MemoryRunner(6, 0, BLOCK_SIZE)
    first = make_request(list(range(16)))
    assert manager.admit(first, 0, 0)
    compute(manager, memory, first, 16)
    manager.release(first, first.sequences[0])
    second = make_request([*range(12), 99, 98, 97])
    assert manager.admit(second, 0, 0)
    assert second.num_cached_tokens == 12
    assert manager.transfers.copies == [(1, 2)]
    assert manager.counts()[0].in_transfer == 1, "nobody may take the source before it is copied"
    compute(manager, memory, second, 3)
    assert memory.device[1][7] == chain_of(range(16)), "the shared block was written"
    assert memory.device[2][6] == chain_of([*range(12), 99, 98, 97])


def test_swapping_moves_shared_blocks_once_and_keeps_them_shared() -> None:
    manager, memory = BlockManager(8, 8, BLOCK_SIZE, False), MemoryRunner(8, 8, BLOCK_SIZE)
    request = make_request(list(range(16)), n=3)
    assert manager.admit(request, 0, 0)
    compute(manager, memory, request, 16)
    request.expand()
    for sequence in request.sequences[1:]:
        manager.fork(request.sequences[0], sequence)
    request.is_forked = True
    assert manager.swap_out(request)
    assert len(manager.transfers.swap_outs) == 2
    run_step(manager, memory, [])
    assert manager.counts()[0].held == 0
    assert manager.admit(request, 0, 0)
    assert len(manager.transfers.swap_ins) == 2
    run_step(manager, memory, [])
    tables = [list(sequence.block_table) for sequence in request.sequences]
    assert tables[0] == tables[1] == tables[2]
    manager.check([request])


def test_a_swapped_block_that_is_not_full_is_never_taken_for_a_full_one() -> None:
    manager, memory = BlockManager(6, 6, BLOCK_SIZE, True), MemoryRunner(6, 6, BLOCK_SIZE)
    swapped, other = make_request(list(range(9)), name="a"), make_request(list(range(9)), name="b")
    assert manager.admit(swapped, 0, 0)
    compute(manager, memory, swapped, 1)
    assert manager.swap_out(swapped)
    assert manager.admit(other, 0, 0)
    compute(manager, memory, other, 9)
    assert manager.admit(swapped, 0, 0)
    assert swapped.sequences[0].block_table[0] != other.sequences[0].block_table[0]


class ManagerMachine(RuleBasedStateMachine):
    """Requests over a tiny pool. Operations pile up in a step; when it runs, memory must hold what tables promise."""

    def __init__(self) -> None:
        super().__init__()
        self.manager = BlockManager(NUM_BLOCKS, 6, BLOCK_SIZE, True)
        self.memory = MemoryRunner(NUM_BLOCKS, 6, BLOCK_SIZE)
        self.requests: list[Request] = []
        self.rows: list[tuple[Request, Sequence, PlannedRow]] = []
        self.admitted: list[Request] = []
        self.num_made = 0

    def in_step(self, request: Request) -> bool:
        return any(owner is request for owner, _, _ in self.rows)

    def idle(self, status: Status) -> list[Request]:
        return [request for request in self.requests if request.status is status and not self.in_step(request)]

    @rule(length=st.integers(1, 40), family=st.integers(0, 2), fork_at=st.integers(0, 40), n=st.sampled_from((1, 1, 3)))
    def arrive(self, length: int, family: int, fork_at: int, n: int) -> None:
        prompt = [family * 100 + position + (position >= fork_at) * 50 for position in range(length)]
        self.num_made += 1
        self.requests.append(make_request(prompt, n, f"r{self.num_made}"))

    @precondition(lambda self: self.idle(Status.WAITING))
    @rule(data=st.data(), headroom=st.integers(0, 2))
    def admit(self, data: st.DataObject, headroom: int) -> None:
        request = data.draw(st.sampled_from(self.idle(Status.WAITING)))
        available = self.manager.device.num_available
        if self.manager.admit(request, headroom, 0):
            request.status = Status.RUNNING
            request.was_admitted = True
            self.admitted.append(request)
            assert self.manager.device.num_available >= headroom
        else:
            assert self.manager.device.num_available == available, "a refusal must change nothing"

    @precondition(lambda self: self.idle(Status.RUNNING))
    @rule(data=st.data(), num_tokens=st.integers(1, 20))
    def compute(self, data: st.DataObject, num_tokens: int) -> None:
        request = data.draw(st.sampled_from(self.idle(Status.RUNNING)))
        new: dict[int, int] = {}
        for sequence in request.computing_sequences():
            known = request.num_computable_tokens(sequence)
            if sequence.num_computed_tokens == known and not request.is_sharing_prompt:
                sequence.output_token_ids.append(1000 + sequence.index)
                known += 1
            new[sequence.index] = min(num_tokens, known - sequence.num_computed_tokens)
        needed = self.manager.num_blocks_to_grow(request, new)
        available = self.manager.device.num_available
        if needed > available:
            return
        for sequence in request.computing_sequences():
            self.plan(request, sequence, new[sequence.index])
        assert self.manager.device.num_available == available - needed

    def plan(self, request: Request, sequence: Sequence, num_new: int) -> None:
        if num_new == 0:
            return
        start, end = sequence.num_computed_tokens, sequence.num_computed_tokens + num_new
        self.manager.grow(sequence, num_new)
        self.manager.cache_filled_blocks(request, sequence, end)
        row = PlannedRow(start, sequence.token_ids(start, end), sequence.block_table, ())
        self.rows.append((request, sequence, row))

    @precondition(lambda self: self.idle(Status.RUNNING))
    @rule(data=st.data())
    def swap_out(self, data: st.DataObject) -> None:
        # As in the scheduler, whoever was admitted in this step is not its victim: swap-outs run before what fills it.
        candidates = [request for request in self.idle(Status.RUNNING) if request not in self.admitted]
        if candidates:
            request = data.draw(st.sampled_from(candidates))
            if self.manager.swap_out(request):
                request.status = Status.WAITING

    @precondition(lambda self: self.requests)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """In any state: waiting, running, in the middle of a step or swapped out."""
        request = data.draw(st.sampled_from(self.requests))
        if self.in_step(request) or request in self.admitted:
            self.run_step(aborted=request)
        else:
            self.let_go(request)

    def let_go(self, request: Request) -> None:
        for sequence in request.sequences:
            self.manager.release(request, sequence)
        self.requests.remove(request)

    @rule()
    def run_step_alone(self) -> None:
        self.run_step(aborted=None)

    def run_step(self, aborted: Request | None) -> None:
        plan = Plan(self.manager.take_transfers(), [row for _, _, row in self.rows])
        if aborted is not None:
            self.let_go(aborted)
        self.memory.run(plan)
        self.manager.end_step()
        for request, sequence, row in self.rows:
            if request is not aborted:
                sequence.num_computed_tokens += len(row.token_ids)
        for request in {id(r): r for r, _, _ in self.rows}.values():
            self.fork_if_prompt_is_done(request)
        self.rows.clear()
        self.admitted.clear()
        self.manager.check(self.requests)
        self.verify()

    def fork_if_prompt_is_done(self, request: Request) -> None:
        leader = request.sequences[0]
        if request.is_sharing_prompt and leader.num_computed_tokens == request.num_prompt_tokens:
            if not request.is_expanded:
                request.expand()
            for sequence in request.sequences[1:]:
                self.manager.fork(leader, sequence)
            request.is_forked = True

    def verify(self) -> None:
        for request in self.requests:
            for sequence in request.sequences:
                table, memory = sequence.block_table, self.memory.device
                if sequence.swap_table:
                    table, memory = sequence.swap_table, self.memory.cpu
                for position in range(sequence.num_computed_tokens):
                    held = memory[table[position // BLOCK_SIZE]][position % BLOCK_SIZE]
                    assert held == chain_of(sequence.token_ids(0, position + 1))

    @invariant()
    def every_block_is_in_one_state(self) -> None:
        sequences = [sequence for request in self.requests for sequence in request.sequences]
        self.manager.device.check(block for sequence in sequences for block in sequence.block_table)
        self.manager.cpu.check(block for sequence in sequences for block in sequence.swap_table)


TestManagerMachine = ManagerMachine.TestCase
TestManagerMachine.settings = settings(max_examples=80, stateful_step_count=50, deadline=None)
