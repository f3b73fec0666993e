"""Block tables on top of two pools: growing, sharing, copy-on-write, swapping and the prefix cache.

Decisions are made here ahead of the step; the moves of block contents that they imply are collected in ``transfers``
and run in the model thread before the forward pass, always in this order:

    1. swap-outs (device -> CPU pool)   read blocks that may be handed out again within this very step
    2. swap-ins  (CPU pool -> device)
    3. copies    (device -> device)     copy-on-write
    4. the forward pass writes new K and V

The order makes a block reusable as soon as a swap-out of it is planned. What a later move still reads (the source of
a swap-in or of a copy) is kept "in transfer" until the step is over, so that no earlier move overwrites it.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from engine.block_pool import BlockCounts, BlockPool
from engine.plan import BlockMove, BlockTransfers
from engine.prefix_cache import BlockKey, CachedBlock, PartialMatch, PrefixCache
from engine.request import Request, Sequence


class _Match(NamedTuple):
    """What of a sequence's known tokens is in the pools: full blocks, then perhaps a part of one more."""

    device_blocks: list[int]
    cpu_blocks: list[int]  # continue where device_blocks end
    partial: PartialMatch | None
    partial_is_on_device: bool


class BlockManager:
    """Gives sequences their blocks and keeps both tiers of the prefix cache.

    Args:
        num_blocks: size of the device pool.
        num_swap_blocks: size of the CPU pool; 0 turns swapping and the second cache tier off.
        block_size: tokens per block.
        enable_prefix_cache: whether finished and shared prefixes are found again.
    """

    def __init__(self, num_blocks: int, num_swap_blocks: int, block_size: int, enable_prefix_cache: bool) -> None:
        self.block_size = block_size
        self.device = BlockPool(num_blocks, self._demote)
        self.cpu = BlockPool(num_swap_blocks, self._drop_from_cpu)
        self.transfers = BlockTransfers()
        self._is_caching = enable_prefix_cache
        self._device_cache = PrefixCache()
        self._cpu_cache = PrefixCache()
        self._filled_this_step: set[int] = set()

    # --- sizes ---

    def num_blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def num_blocks_whole(self, request: Request, num_growing: int = 0) -> int:
        """Device blocks for all known tokens, plus ``num_growing`` per sequence; only full prompt blocks are shared."""
        num_sequences = request.num_sequences
        num_shared = request.num_prompt_tokens // self.block_size if num_sequences > 1 else 0
        lengths = [sequence.num_tokens + num_growing for sequence in request.sequences]
        lengths += [request.num_prompt_tokens + num_growing] * (num_sequences - len(lengths))
        return num_shared + sum(self.num_blocks_for(length) - num_shared for length in lengths)

    def num_blocks_to_grow(self, request: Request, num_new_tokens: dict[int, int]) -> int:
        """Blocks that writing so many tokens takes (by sequence index), copies of shared blocks included."""
        num_needed = 0
        writers: dict[int, int] = {}
        for sequence in request.computing_sequences():
            num_new = num_new_tokens.get(sequence.index, 0)
            if num_new == 0:
                continue
            num_needed += self.num_blocks_beyond_table(sequence, num_new)
            if sequence.num_computed_tokens % self.block_size:
                block = sequence.block_table[-1]
                writers[block] = writers.get(block, 0) + 1
        for block, num_writers in writers.items():
            # Of all holders the last to write keeps the block itself.
            num_needed += num_writers - (self.device.num_references(block) == num_writers)
        return num_needed

    # --- admission ---

    def admit(self, request: Request, num_headroom: int, num_reserved: int) -> bool:
        """Look up the request's known tokens, pin what is cached and bring in what is swapped out: one act.

        Args:
            num_headroom: blocks that must stay available beside the whole known length.
            num_reserved: available blocks that are spoken for by running requests.

        Returns:
            False, with nothing changed, if the whole known length does not fit.
        """
        num_available = self.device.num_available - num_headroom - num_reserved
        if request.is_swapped_out:
            return self._swap_in(request, num_available)
        sequence = request.sequences[0]
        match = self._match(request, sequence)
        num_held_already = sum(self.device.num_references(block) > 0 for block in match.device_blocks)
        num_spare = num_available - (self.num_blocks_whole(request) - num_held_already)
        if num_spare < 0:
            return False
        self._pin(sequence, match, may_copy=num_spare > 0)
        if not request.was_admitted:
            request.num_cached_tokens = min(sequence.num_computed_tokens, request.num_prompt_tokens)
        return True

    def extend_from_cache(self, request: Request) -> None:
        """Before a chunk is computed: take full blocks that another request has filled since."""
        sequence = request.sequences[0]
        num_reusable = self._num_reusable_tokens(request)
        is_aligned = sequence.num_computed_tokens % self.block_size == 0
        if not is_aligned or num_reusable < sequence.num_computed_tokens + self.block_size:
            return
        keys = request.block_keys(sequence, self.block_size, num_reusable // self.block_size)
        for key in keys[len(sequence.block_table) :]:
            block = self._device_cache.find(key)
            if block is None:
                return
            self.device.retain(block)
            sequence.block_table.append(block)
            sequence.num_computed_tokens += self.block_size
            if request.num_preemptions == 0:
                request.num_cached_tokens = min(sequence.num_computed_tokens, request.num_prompt_tokens)

    def _num_reusable_tokens(self, request: Request) -> int:
        """At least one token is always computed: its logits are wanted. Logits of the prompt allow no reuse at all."""
        if not self._is_caching or request.params.prompt_logprobs is not None:
            return 0
        return request.num_computable_tokens(request.sequences[0]) - 1

    def locate(self, keys: list[BlockKey]) -> tuple[int, int]:
        """How many of the leading blocks are cached on the device, and how many after them in the CPU pool."""
        num_device = next((i for i, key in enumerate(keys) if key not in self._device_cache), len(keys))
        num_both = next((i for i, key in enumerate(keys) if i >= num_device and key not in self._cpu_cache), len(keys))
        return num_device, num_both - num_device

    def _match(self, request: Request, sequence: Sequence) -> _Match:
        num_reusable = self._num_reusable_tokens(request)
        keys = request.block_keys(sequence, self.block_size, num_reusable // self.block_size)
        num_device, num_cpu = self.locate(keys)
        num_full = num_device + num_cpu
        device_blocks = [self._device_cache.block_of(key) for key in keys[:num_device]]
        cpu_blocks = [self._cpu_cache.block_of(key) for key in keys[num_device:num_full]]
        parent = request.parent_key(keys, num_full)
        start = num_full * self.block_size
        wanted = sequence.token_ids(start, min(start + self.block_size, num_reusable))
        on_device = self._device_cache.find_partial(parent, wanted, skip=self._filled_this_step)
        on_cpu = self._cpu_cache.find_partial(parent, wanted, skip=set())
        if on_cpu is not None and (on_device is None or on_cpu.num_tokens > on_device.num_tokens):
            return _Match(device_blocks, cpu_blocks, on_cpu, False)
        return _Match(device_blocks, cpu_blocks, on_device, True)

    def _pin(self, sequence: Sequence, match: _Match, may_copy: bool) -> None:
        for block in match.device_blocks:
            self.device.retain(block)
        for block in match.cpu_blocks:
            self.cpu.retain(block)
        partial = match.partial if may_copy or not match.partial_is_on_device else None
        if partial is not None:
            (self.device if match.partial_is_on_device else self.cpu).retain(partial.block)
        sequence.block_table = array("i", match.device_blocks)
        for block in match.cpu_blocks:
            target = self._bring_in(block)
            content = self._cpu_cache.content(block)
            sequence.block_table.append(target)
            if content is not None:
                self._make_findable(target, content)
        sequence.num_computed_tokens = len(sequence.block_table) * self.block_size
        if partial is None:
            return
        if match.partial_is_on_device:
            target = self.device.take()
            self.transfers.copies.append(BlockMove(partial.block, target))
            self.device.release_after_step(partial.block)
        else:
            target = self._bring_in(partial.block)
        sequence.block_table.append(target)
        sequence.num_computed_tokens += partial.num_tokens

    # --- growth and release ---

    def grow(self, sequence: Sequence, num_new_tokens: int) -> None:
        """Slots for the next tokens. The caller has checked ``num_blocks_to_grow`` against what is available."""
        table = sequence.block_table
        if sequence.num_computed_tokens % self.block_size and self.device.num_references(table[-1]) > 1:
            target = self.device.take()
            self.transfers.copies.append(BlockMove(table[-1], target))
            self.device.release(table[-1])  # a sibling that is not preempted within this step still holds it
            table[-1] = target
        self.extend(sequence, self.num_blocks_beyond_table(sequence, num_new_tokens))

    def num_blocks_beyond_table(self, sequence: Sequence, num_new_tokens: int) -> int:
        return self.num_blocks_for(sequence.num_computed_tokens + num_new_tokens) - len(sequence.block_table)

    def extend(self, sequence: Sequence, num_blocks: int) -> None:
        for _ in range(num_blocks):
            sequence.block_table.append(self.device.take())

    def cache_filled_blocks(self, request: Request, sequence: Sequence, num_computed: int) -> None:
        """Make blocks findable that the coming step fills up to ``num_computed`` tokens.

        Other rows of the same step may already share them: in each layer all K and V are written before attention.
        """
        first = sequence.num_computed_tokens // self.block_size
        num_full = num_computed // self.block_size
        if not self._is_caching or first == num_full:
            return
        keys = request.block_keys(sequence, self.block_size, num_full)
        for index in range(first, num_full):
            start = index * self.block_size
            tokens = tuple(sequence.token_ids(start, start + self.block_size))
            content = CachedBlock(request.parent_key(keys, index), tokens, keys[index])
            if self._make_findable(sequence.block_table[index], content):
                self._filled_this_step.add(sequence.block_table[index])

    def fork(self, parent: Sequence, child: Sequence) -> None:
        """Let ``child`` start from all of the parent's computed tokens, sharing every block."""
        child.block_table = array("i", parent.block_table)
        child.block_keys = list(parent.block_keys)
        child.num_computed_tokens = parent.num_computed_tokens
        for block in child.block_table:
            self.device.retain(block)

    def release(self, request: Request, sequence: Sequence) -> None:
        """Give back a sequence's blocks, on the device and in the CPU pool; cached ones stay findable."""
        self._cache_last_block(request, sequence)
        # The deepest block first: a prefix outlives what continues it.
        for block in reversed(sequence.block_table):
            self.device.release(block)
        for block in reversed(sequence.swap_table):
            self.cpu.release(block)
        sequence.block_table = array("i")
        sequence.swap_table = array("i")
        sequence.num_computed_tokens = 0

    def forget(self, device_blocks: Iterable[int], cpu_blocks: Iterable[int]) -> None:
        """These blocks do not hold what they should: nobody may find them."""
        for pool, cache, blocks in (
            (self.device, self._device_cache, device_blocks),
            (self.cpu, self._cpu_cache, cpu_blocks),
        ):
            for block in blocks:
                if cache.remove(block) is not None:
                    pool.forget_content(block)

    def holds_any(self, request: Request, device_blocks: set[int], cpu_blocks: set[int]) -> bool:
        return any(
            not device_blocks.isdisjoint(sequence.block_table) or not cpu_blocks.isdisjoint(sequence.swap_table)
            for sequence in request.sequences
        )

    def _cache_last_block(self, request: Request, sequence: Sequence) -> None:
        num_tokens = sequence.num_computed_tokens % self.block_size
        if not self._is_caching or not num_tokens or not sequence.block_table:
            return
        block = sequence.block_table[-1]
        if self.device.num_references(block) > 1:
            return
        start = sequence.num_computed_tokens - num_tokens
        tokens = tuple(sequence.token_ids(start, sequence.num_computed_tokens))
        keys = request.block_keys(sequence, self.block_size, start // self.block_size)
        parent = request.parent_key(keys, len(keys))
        known = self._device_cache.find_partial(parent, tokens, skip=set())
        if known is None or known.num_tokens < num_tokens:
            self._make_findable(block, CachedBlock(parent, tokens, key=None))

    # --- swapping ---

    def num_private_blocks(self, request: Request) -> int:
        """Blocks that become available if the request lets go of them."""
        entries = Counter(block for sequence in request.sequences for block in sequence.block_table)
        return sum(self.device.num_references(block) == count for block, count in entries.items())

    def num_blocks_held(self, request: Request) -> int:
        """Distinct device blocks in the request's tables."""
        return len({block for sequence in request.sequences for block in sequence.block_table})

    def swap_out(self, request: Request) -> bool:
        """Move all sequences of a request to the CPU pool, what they share only once; False if it has no room."""
        blocks = {block for sequence in request.sequences for block in sequence.block_table}
        if len(blocks) > self.cpu.num_available:
            return False
        targets: dict[int, int] = {}
        for sequence in request.sequences:
            for block in sequence.block_table:
                if block in targets:
                    self.cpu.retain(targets[block])
                    continue
                targets[block] = self.cpu.take()
                self.transfers.swap_outs.append(BlockMove(block, targets[block]))
            sequence.swap_table = array("i", (targets[block] for block in sequence.block_table))
            for block in reversed(sequence.block_table):
                self.device.release(block)
            sequence.block_table = array("i")
        return True

    def _swap_in(self, request: Request, num_available: int) -> bool:
        found = self._find_swapped_on_device(request)
        num_held_already = sum(self.device.num_references(block) > 0 for block in found.values())
        if self.num_blocks_whole(request) - num_held_already > num_available:
            return False
        targets = dict(found)
        for block in found.values():
            self.device.retain(block)
        for sequence in request.sequences:
            for block in sequence.swap_table:
                if block in found:
                    found.pop(block)
                elif block in targets:
                    self.device.retain(targets[block])
                else:
                    targets[block] = self.device.take()
                    self.transfers.swap_ins.append(BlockMove(block, targets[block]))
            sequence.block_table = array("i", (targets[block] for block in sequence.swap_table))
            for block in sequence.swap_table:
                self.cpu.release_after_step(block)
            sequence.swap_table = array("i")
        return True

    def _find_swapped_on_device(self, request: Request) -> dict[int, int]:
        """CPU-pool block -> device block with the same content, where the prefix cache still has one."""
        found: dict[int, int] = {}
        for sequence in request.sequences:
            num_full = sequence.num_computed_tokens // self.block_size  # keys may be known of blocks yet to be filled
            for key, block in zip(sequence.block_keys[:num_full], sequence.swap_table, strict=False):
                device_block = self._device_cache.find(key)
                if device_block is not None:
                    found[block] = device_block
        return found

    def _bring_in(self, cpu_block: int) -> int:
        """Plan the copy of a pinned CPU block to a new device block and let go of the former."""
        target = self.device.take()
        self.transfers.swap_ins.append(BlockMove(cpu_block, target))
        self.cpu.release_after_step(cpu_block)
        return target

    # --- the two tiers ---

    def _demote(self, block: int) -> None:
        """A cached device block is being reused: keep its content in the CPU pool if there is room."""
        content = self._device_cache.remove(block)
        if (
            content is None
            or self.cpu.num_available == 0
            or (content.key is not None and content.key in self._cpu_cache)
        ):
            return
        target = self.cpu.take()
        self.transfers.swap_outs.append(BlockMove(block, target))
        if self._cpu_cache.insert(target, content):
            self.cpu.mark_cached(target)
        self.cpu.release(target)

    def _drop_from_cpu(self, block: int) -> None:
        self._cpu_cache.remove(block)

    def _make_findable(self, block: int, content: CachedBlock) -> bool:
        is_new = self._device_cache.insert(block, content)
        if is_new:
            self.device.mark_cached(block)
        return is_new

    # --- the step ---

    def take_transfers(self) -> BlockTransfers:
        transfers, self.transfers = self.transfers, BlockTransfers()
        # A block demoted to the CPU pool may be evicted there by a later move of the same step: only that one counts.
        transfers.swap_outs = list({move.target: move for move in transfers.swap_outs}.values())
        return transfers

    def end_step(self) -> None:
        self._filled_this_step.clear()
        self.device.end_step()
        self.cpu.end_step()

    def counts(self) -> tuple[BlockCounts, BlockCounts]:
        """Blocks by state: device pool, CPU pool."""
        return self.device.counts(), self.cpu.counts()

    def key_of(self, block: int) -> BlockKey | None:
        """Prefix-cache key of a device block, if it is full and can be found."""
        content = self._device_cache.content(block)
        return None if content is None else content.key

    def check(self, requests: Iterable[Request]) -> None:
        """Assert that both pools account for every block of every table (invariant 1)."""
        sequences = [sequence for request in requests for sequence in request.sequences]
        self.device.check(block for sequence in sequences for block in sequence.block_table)
        self.cpu.check(block for sequence in sequences for block in sequence.swap_table)
        for sequence in sequences:
            num_slots = len(sequence.block_table) * self.block_size
            assert num_slots - sequence.num_computed_tokens < self.block_size or sequence.swap_table, "slots wasted"
