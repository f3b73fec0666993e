"""The pool alone: exact ids and order in small cases, and a random machine against a simple model."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from engine.block_pool import BlockPool


def make(num_blocks: int) -> tuple[BlockPool, list[int]]:
    evicted: list[int] = []
    return BlockPool(num_blocks, evicted.append), evicted


def test_blocks_without_content_are_taken_first_and_cached_ones_by_last_use() -> None:
    pool, evicted = make(4)
    a, b, c = pool.take(), pool.take(), pool.take()
    assert [a, b, c] == [0, 1, 2]
    pool.mark_cached(a)
    pool.mark_cached(b)
    for block in (b, a, c):
        pool.release(block)
    assert pool.reclaim_order() == [2, 3, 1, 0]
    assert pool.counts() == (2, 2, 0, 0)
    assert [pool.take() for _ in range(4)] == [2, 3, 1, 0]
    assert evicted == [1, 0]
    with pytest.raises(IndexError):
        pool.take()


def test_a_hit_takes_a_cached_block_out_of_the_middle() -> None:
    pool, evicted = make(3)
    blocks = [pool.take() for _ in range(3)]
    for block in blocks:
        pool.mark_cached(block)
        pool.release(block)
    pool.retain(1)
    assert pool.reclaim_order() == [0, 2]
    pool.release(1)
    assert pool.reclaim_order() == [0, 2, 1]
    assert evicted == []


def test_a_block_that_a_move_still_reads_cannot_be_taken() -> None:
    pool, _ = make(1)
    block = pool.take()
    pool.release_after_step(block)
    assert pool.counts() == (0, 0, 0, 1)
    with pytest.raises(IndexError):
        pool.take()
    pool.end_step()
    assert pool.take() == block


def test_misuse_is_refused() -> None:
    pool, _ = make(1)
    with pytest.raises(ValueError, match="no content"):
        pool.retain(0)
    with pytest.raises(ValueError, match="not held"):
        pool.release(0)


def test_forgotten_content_makes_a_block_the_next_to_go() -> None:
    pool, evicted = make(2)
    for block in (pool.take(), pool.take()):
        pool.mark_cached(block)
        pool.release(block)
    pool.forget_content(1)
    assert pool.reclaim_order() == [1, 0]
    assert pool.take() == 1
    assert evicted == []


class PoolMachine(RuleBasedStateMachine):
    """References, content and order as plain lists; the pool must agree after every call."""

    SIZE = 6

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(self.SIZE, lambda block: self.content.discard(block))
        self.references = [0] * self.SIZE
        self.content: set[int] = set()
        self.order = list(range(self.SIZE))
        self.deferred: list[int] = []

    def held(self) -> list[int]:
        return [block for block, count in enumerate(self.references) if count > self.deferred.count(block)]

    def drop(self, block: int) -> None:
        self.references[block] -= 1
        if self.references[block] == 0:
            self.order.insert(len(self.order) if block in self.content else 0, block)

    @precondition(lambda self: self.order)
    @rule()
    def take(self) -> None:
        expected = self.order.pop(0)
        assert self.pool.take() == expected
        assert expected not in self.content, "eviction was not announced"
        self.references[expected] = 1

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def retain(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.held()))
        self.pool.retain(block)
        self.references[block] += 1

    @precondition(lambda self: self.content.intersection(self.order))
    @rule(data=st.data())
    def hit(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.content.intersection(self.order))))
        self.pool.retain(block)
        self.order.remove(block)
        self.references[block] = 1

    @precondition(lambda self: self.held())
    @rule(data=st.data(), deferred=st.booleans())
    def release(self, data: st.DataObject, deferred: bool) -> None:
        block = data.draw(st.sampled_from(self.held()))
        if deferred:
            self.pool.release_after_step(block)
            self.deferred.append(block)
        else:
            self.pool.release(block)
            self.drop(block)

    @precondition(lambda self: self.held())
    @rule(data=st.data())
    def mark(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.held()))
        self.pool.mark_cached(block)
        self.content.add(block)

    @precondition(lambda self: self.content)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(sorted(self.content)))
        self.pool.forget_content(block)
        self.content.remove(block)
        if block in self.order:
            self.order.remove(block)
            self.order.insert(0, block)

    @rule()
    def end_step(self) -> None:
        self.pool.end_step()
        for block in self.deferred:
            self.drop(block)
        self.deferred.clear()

    @invariant()
    def agrees(self) -> None:
        tables = list(self.references)
        for block in self.deferred:
            tables[block] -= 1
        self.pool.check(block for block, count in enumerate(tables) for _ in range(count))
        assert self.pool.reclaim_order() == self.order
        assert self.pool.counts().cached == len(self.content.intersection(self.order))


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
