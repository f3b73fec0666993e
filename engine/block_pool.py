"""A pool of fixed-size KV blocks: who holds each, and which may be taken next.

Every block is in exactly one state:

    state        references  in the reclaim list  content
    free         0           yes, at the front    none
    cached       0           yes, by last use     a prefix that may be found again
    held         >= 1        no                   belongs to block tables; may be cached as well
    in transfer  >= 1        no                   in no block table any more, but a move of the running step reads it

The pool knows ids and counts only; what a cached block contains is the prefix cache's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple


class BlockCounts(NamedTuple):
    """How many blocks are in each state; the sum is the pool's size."""

    free: int
    cached: int
    held: int
    in_transfer: int


class BlockPool:
    """Reference counts and a reclaim list with O(1) take, return and removal from the middle.

    The reclaim list is intrusive (two arrays of neighbours and a sentinel) because a hit on a cached block takes it
    out of the middle, which a deque cannot do in constant time.

    Args:
        num_blocks: size of the pool; may be 0.
        on_evict: called with a cached block's id before it is handed out for new content.
    """

    def __init__(self, num_blocks: int, on_evict: Callable[[int], None]) -> None:
        self.num_blocks = num_blocks
        self.num_available = num_blocks
        self._on_evict = on_evict
        self._references = [0] * num_blocks
        self._is_cached = bytearray(num_blocks)
        self._taken_in_step = [0] * num_blocks
        self._step = 0
        self._num_cached_available = 0
        self._released_after_step: list[int] = []
        self._sentinel = num_blocks
        self._next: list[int] = [*range(1, num_blocks + 1), 0]
        self._previous: list[int] = [num_blocks, *range(num_blocks)]

    def take(self) -> int:
        """The block whose content is least worth keeping, with one reference. Call only if one is available."""
        block = self._next[self._sentinel]
        if block == self._sentinel:
            raise IndexError("no block is available")
        self._unlink(block)
        if self._is_cached[block]:
            self._is_cached[block] = 0
            self._num_cached_available -= 1
            self._on_evict(block)
        self._references[block] = 1
        self._taken_in_step[block] = self._step
        return block

    def retain(self, block: int) -> None:
        """Add a reference; a cached block that nobody held leaves the reclaim list."""
        if self._references[block] == 0:
            if not self._is_cached[block]:
                raise ValueError(f"block {block} has no content to share")
            self._unlink(block)
            self._num_cached_available -= 1
        self._references[block] += 1

    def release(self, block: int) -> None:
        """Drop a reference. With the last one the block can be taken again: cached ones last, by time of release."""
        if self._references[block] <= 0:
            raise ValueError(f"block {block} is not held")
        self._references[block] -= 1
        if self._references[block] == 0:
            self._link(block)

    def release_after_step(self, block: int) -> None:
        """Drop a reference when the coming step is over: one of its moves still reads the block."""
        self._released_after_step.append(block)

    def end_step(self) -> None:
        """The step's moves have run: their sources can be taken again."""
        for block in self._released_after_step:
            self.release(block)
        self._released_after_step.clear()
        self._step += 1

    def mark_cached(self, block: int) -> None:
        """A held block's content is now findable: keep it for as long as possible after its last release."""
        self._is_cached[block] = 1

    def forget_content(self, block: int) -> None:
        """A cached block's content is no longer findable; if nobody holds it, it is the next to be taken."""
        self._is_cached[block] = 0
        if self._references[block] == 0:
            self._unlink(block)
            self._num_cached_available -= 1
            self._link(block)

    def num_references(self, block: int) -> int:
        return self._references[block]

    def references(self) -> list[int]:
        """Of every block."""
        return list(self._references)

    def cached_flags(self) -> bytes:
        """1 for every block whose content can be found, held or not."""
        return bytes(self._is_cached)

    def age_steps(self, block: int) -> int:
        """Steps since the block was last taken for new content."""
        return self._step - self._taken_in_step[block]

    def counts(self) -> BlockCounts:
        moving = Counter(self._released_after_step)
        in_transfer = sum(self._references[block] == count for block, count in moving.items())
        return BlockCounts(
            free=self.num_available - self._num_cached_available,
            cached=self._num_cached_available,
            held=self.num_blocks - self.num_available - in_transfer,
            in_transfer=in_transfer,
        )

    def reclaim_order(self) -> list[int]:
        """Available blocks, the next to be taken first."""
        order = []
        block = self._next[self._sentinel]
        while block != self._sentinel:
            order.append(block)
            block = self._next[block]
        return order

    def check(self, held: Iterable[int]) -> None:
        """Assert that every block is in exactly one state and that counts equal the given block-table entries."""
        expected = Counter(held) + Counter(self._released_after_step)
        available = self.reclaim_order()
        assert len(available) == len(set(available)) == self.num_available, "reclaim list is damaged"
        cached = sum(self._is_cached[block] for block in available)
        assert cached == self._num_cached_available, "count of cached blocks is off"
        for block, references in enumerate(self._references):
            assert references == expected[block], f"block {block}: {references} references, {expected[block]} entries"
        unheld = {block for block, references in enumerate(self._references) if references == 0}
        assert unheld == set(available), "a block is lost"
        assert sum(self.counts()) == self.num_blocks, "the states do not add up"

    def _link(self, block: int) -> None:
        """Into the reclaim list: content worth keeping at the back, nothing at the front."""
        if self._is_cached[block]:
            before, after = self._previous[self._sentinel], self._sentinel
            self._num_cached_available += 1
        else:
            before, after = self._sentinel, self._next[self._sentinel]
        self._next[before] = self._previous[after] = block
        self._previous[block], self._next[block] = before, after
        self.num_available += 1

    def _unlink(self, block: int) -> None:
        before, after = self._previous[block], self._next[block]
        self._next[before], self._previous[after] = after, before
        self.num_available -= 1
