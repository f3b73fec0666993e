"""What each API key uses, held against its limits: a key at its limit is refused, and nobody else notices.

Counted in this process: of several servers that share a store, each grants the whole of a limit.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Literal

from chatsrv.counters import REFUSALS
from chatsrv.errors import Busy, TooLarge
from chatsrv.keyring import Caller
from chatsrv.limits import NO_LIMITS, Limits
from chatsrv.observation import Observation
from chatsrv.seam import OutputStream
from engine import EngineError, Output

Counted = Literal["connections", "running", "queued"]

RETRY_AFTER_S = 1


_NOUNS: dict[Counted, str] = {
    "connections": "connections open",
    "running": "responses running",
    "queued": "responses queued on sockets",
}


class Accounts:
    """The accounts of all keys.

    Args:
        max_message_bytes: that every key may send at once at most.
    """

    def __init__(self, max_message_bytes: int) -> None:
        self._max_message_bytes = max_message_bytes
        self._accounts: dict[str, Account] = {}

    def of(self, caller: Caller) -> Account:
        """The account of the caller's key, under the limits that the caller has now."""
        account = self.of_key(caller.key_id)
        account.limits = caller.limits
        account.max_message_bytes = min(
            self._max_message_bytes, caller.limits.max_message_bytes or self._max_message_bytes
        )
        return account

    def of_key(self, key_id: str) -> Account:
        """The account of a key whose caller is not here to ask, under the limits that it had last."""
        account = self._accounts.get(key_id)
        if account is None:
            account = self._accounts[key_id] = Account()
        return account


class Account:
    """What one key uses now.

    Attributes:
        max_message_bytes: the server's limit, or the key's where that is less.
    """

    max_message_bytes: int

    def __init__(self, limits: Limits = NO_LIMITS, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._taken: Counter[Counted] = Counter()
        self._debt = 0.0  # tokens used that no time has paid for yet
        self._paid_at = clock()

    def take(self, what: Counted) -> None:
        """One more of these, until it is given back.

        Raises:
            Busy: the key has as many as it may.
        """
        limit = getattr(self.limits, f"max_{what}")
        if limit is not None and self._taken[what] >= limit:
            raise _refused(what, f"this API key has {limit} {_NOUNS[what]}, the most it may", RETRY_AFTER_S)
        self._taken[what] += 1

    def give_back(self, what: Counted) -> None:
        self._taken[what] -= 1

    def check_size(self, num_bytes: int) -> None:
        """Of a message.

        Raises:
            TooLarge: it is more than may be sent at once.
        """
        if num_bytes > self.max_message_bytes:
            raise TooLarge(f"a message may have {self.max_message_bytes} bytes")

    def charge(self, num_tokens: int) -> None:
        """Tokens were used. A response that runs is never cut off for it; the next may have to wait."""
        if self.limits.tokens_per_minute is not None:
            self._pay()
            self._debt += num_tokens

    @contextmanager
    def place(self) -> Iterator[Place]:
        """A place among the key's running responses. It is free again at the end, unless a stream keeps it.

        Raises:
            Busy: there is none, or the key has used its tokens up.
        """
        self._check_tokens()
        self.take("running")
        place = Place(self)
        try:
            yield place
        finally:
            if not place.is_kept:
                place.leave()

    def continued(self) -> Place:
        """A place for an answer that another server let in and that goes on here: it counts, and is never refused."""
        self._taken["running"] += 1
        return Place(self)

    def _check_tokens(self) -> None:
        limit = self.limits.tokens_per_minute
        self._pay()
        if limit is not None and self._debt >= limit:
            wait_s = math.floor((self._debt - limit) * 60 / limit) + 1
            raise _refused("tokens_per_minute", f"this API key has used up its {limit} tokens per minute", wait_s)

    def _pay(self) -> None:
        now = self._clock()
        limit = self.limits.tokens_per_minute
        self._debt = 0.0 if limit is None else max(0.0, self._debt - (now - self._paid_at) * limit / 60)
        self._paid_at = now


class Place:
    """One running response of a key."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._is_taken = True
        self.is_kept = False

    def keep(self, stream: OutputStream, num_prompt_tokens: int, observation: Observation) -> OutputStream:
        """The same stream, which holds the place until it is closed, and whose tokens are charged and observed."""
        self.is_kept = True
        self._account.charge(num_prompt_tokens)
        return _ChargedStream(stream, self._account, self, observation)

    def leave(self) -> bool:
        """Give the place back; False if it was before."""
        if not self._is_taken:
            return False
        self._is_taken = False
        self._account.give_back("running")
        return True


class _ChargedStream:
    def __init__(self, stream: OutputStream, account: Account, place: Place, observation: Observation) -> None:
        self._stream = stream
        self._account = account
        self._place = place
        self._observation = observation

    async def __aiter__(self) -> AsyncIterator[Output]:
        try:
            async for output in self._stream:
                self._account.charge(len(output.token_ids))
                self._observation.note(output)
                yield output
        except EngineError:
            self._observation.fail()
            raise

    async def aclose(self) -> None:
        if self._place.leave():
            self._observation.end()
        await self._stream.aclose()


def _refused(limit: str, message: str, retry_after_s: int) -> Busy:
    REFUSALS.labels(limit).inc()
    return Busy(message, code="rate_limit_exceeded", headers={"Retry-After": str(retry_after_s)})
