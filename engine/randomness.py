"""Random numbers without state: each is a hash of what it is for, so there is nothing to lose, share or restore.

A generator with a state would have to survive preemption, restarts and changes of the batch around it. A hash of
(seed, position) gives the same number whenever and wherever a token is drawn.
"""

from __future__ import annotations

from hashlib import blake2b

_MASK = 2**64 - 1


def sequence_seed(seed: int, index: int) -> int:
    """Seed of a request's ``index``-th sequence. The first has the request's own, so ``n=1`` repeats it."""
    return seed if index == 0 else _hash(b"sequence", seed, index)


def token_seed(seed: int, position: int) -> int:
    """64 bits that draw the token at this position of the sequence with this seed."""
    return _hash(b"token", seed, position)


def _hash(purpose: bytes, seed: int, number: int) -> int:
    data = (seed & _MASK).to_bytes(8, "little") + number.to_bytes(8, "little")
    return int.from_bytes(blake2b(data, digest_size=8, person=purpose).digest(), "little")
