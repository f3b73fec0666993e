"""Which block holds which prefix: chained SHA-256 keys, and partial matches to the token.

The key of a full block is SHA-256(key of the block before it, its token ids): equal keys mean equal tokens from the
very first one, under the same salt and the same model. The chain starts at a root made of the model's fingerprint and
the caller's salt, so callers with different salts can never share, or time, each other's blocks.

The blocks that continue a key are its children. When the next block matches none of them whole, the child with the
longest common beginning still saves that part: it is copied (copy-on-write), never written. The last, partly filled
block of a finished sequence is a child too, which is how the next turn of a chat finds the answer just generated.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple, NewType

BlockKey = NewType("BlockKey", bytes)

_DOMAIN = b"chatsrv prefix cache v1"

MAX_CHILDREN_COMPARED = 32
"""Bound on the work of one partial match; the most recent children are compared."""


def root_key(fingerprint: str, salt: bytes) -> BlockKey:
    """Start of every chain of one model and one salt. Lengths are part of the input, so fields cannot run together."""
    name = fingerprint.encode()
    head = b"%s/%d/%d/" % (_DOMAIN, len(name), len(salt))
    return BlockKey(hashlib.sha256(head + name + salt).digest())


def child_key(parent: BlockKey, token_ids: Sequence[int]) -> BlockKey:
    return BlockKey(hashlib.sha256(parent + array("i", token_ids).tobytes()).digest())


def block_keys(root: BlockKey, token_ids: Sequence[int], block_size: int) -> list[BlockKey]:
    """Keys of all full blocks of the tokens."""
    keys: list[BlockKey] = []
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        keys.append(child_key(keys[-1] if keys else root, token_ids[start : start + block_size]))
    return keys


class CachedBlock(NamedTuple):
    """Content of one block: ``token_ids`` after everything that ``parent`` stands for. ``key`` is None if not full."""

    parent: BlockKey
    token_ids: tuple[int, ...]
    key: BlockKey | None


class PartialMatch(NamedTuple):
    """A block whose first ``num_tokens`` tokens are the wanted ones."""

    block: int
    num_tokens: int


class PrefixCache:
    """Index of one pool's cached blocks. The first block with a key keeps it; equal content elsewhere stays private."""

    def __init__(self) -> None:
        self._contents: dict[int, CachedBlock] = {}
        self._blocks: dict[BlockKey, int] = {}
        # Parent -> first token -> children, oldest first. The inner dict serves as a set that keeps its order.
        self._children: dict[BlockKey, dict[int, dict[int, None]]] = {}

    def __len__(self) -> int:
        return len(self._contents)

    def __contains__(self, key: BlockKey) -> bool:
        return key in self._blocks

    def find(self, key: BlockKey) -> int | None:
        """The block that holds this very prefix."""
        return self._blocks.get(key)

    def block_of(self, key: BlockKey) -> int:
        return self._blocks[key]

    def find_partial(self, parent: BlockKey, token_ids: Sequence[int], skip: set[int]) -> PartialMatch | None:
        """The child of ``parent`` with the longest beginning in common with ``token_ids``, outside ``skip``."""
        if not token_ids:
            return None
        best: PartialMatch | None = None
        siblings = self._children.get(parent, {}).get(token_ids[0], {})
        for block in islice(reversed(siblings), MAX_CHILDREN_COMPARED):
            if block in skip:
                continue
            num_tokens = _common_length(self._contents[block].token_ids, token_ids)
            if best is None or num_tokens > best.num_tokens:
                best = PartialMatch(block, num_tokens)
        return best

    def insert(self, block: int, content: CachedBlock) -> bool:
        """Make a block findable; False if its content already is, or the block already stands for something."""
        if block in self._contents or (content.key is not None and content.key in self._blocks):
            return False
        self._contents[block] = content
        if content.key is not None:
            self._blocks[content.key] = block
        self._children.setdefault(content.parent, {}).setdefault(content.token_ids[0], {})[block] = None
        return True

    def remove(self, block: int) -> CachedBlock | None:
        """Forget a block; returns what it held."""
        content = self._contents.pop(block, None)
        if content is None:
            return None
        if content.key is not None:
            del self._blocks[content.key]
        by_token = self._children[content.parent]
        siblings = by_token[content.token_ids[0]]
        del siblings[block]
        if not siblings:
            del by_token[content.token_ids[0]]
            if not by_token:
                del self._children[content.parent]
        return content

    def content(self, block: int) -> CachedBlock | None:
        return self._contents.get(block)


def _common_length(left: Sequence[int], right: Sequence[int]) -> int:
    for position, (a, b) in enumerate(zip(left, right, strict=False)):
        if a != b:
            return position
    return min(len(left), len(right))
