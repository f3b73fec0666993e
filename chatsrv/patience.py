"""A time limit for each of many short waits, which costs a timer now and then instead of one each time."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Patience:
    """A context in which one task at a time waits; once it has waited for ``limit_s`` the wait ends.

    Raises (at the end of the context):
        TimeoutError: it waited for so long.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._num_cancels = 0
        self._has_expired = False
        self.began = 0.0

    def __enter__(self) -> None:
        self.began = self._loop.time()
        self._task = asyncio.current_task(self._loop)
        assert self._task is not None
        self._num_cancels = self._task.cancelling()
        self._has_expired = False
        if self._timer is None:
            self._timer = self._loop.call_later(self._limit_s, self._look)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        assert task is not None
        if self._has_expired and task.uncancel() <= self._num_cancels and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def close(self) -> None:
        """Nobody will wait any more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        if self._task is None:
            return
        left_s = self.began + self._limit_s - self._loop.time()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._look)
        else:
            self._has_expired = True
            self._task.cancel()
