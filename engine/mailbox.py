"""Where a request's outputs wait for its reader. The engine never waits: what lags is merged."""

from __future__ import annotations

import asyncio
from collections import deque

from engine.api import Output, merge_outputs
from engine.errors import EngineError


class Mailbox:
    """Outputs of one request, delivered in order; those of one sequence that pile up are delivered as one.

    Bounded by construction: it never holds more than the request's own text and tokens.
    """

    def __init__(self) -> None:
        self._notices: deque[Output] = deque()
        self._outputs: dict[int, list[Output]] = {}
        self._reader: asyncio.Future[None] | None = None
        self._is_closed = False
        self._error: EngineError | None = None

    def put(self, output: Output) -> None:
        if output.notice is not None:
            self._notices.append(output)
        else:
            self._outputs.setdefault(output.index, []).append(output)
        self._wake()

    def close(self, error: EngineError | None = None) -> None:
        """No more will come; what is still here is delivered first. Later calls do nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._error = error
        self._wake()

    async def get(self) -> Output | None:
        """The next output; None after the last one. One reader at a time.

        Raises:
            EngineError: the request did not end well.
        """
        while not self._notices and not self._outputs:
            if self._error is not None:
                raise self._error
            if self._is_closed:
                return None
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        if self._notices:
            return self._notices.popleft()
        index = next(iter(self._outputs))
        return merge_outputs(self._outputs.pop(index))

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
