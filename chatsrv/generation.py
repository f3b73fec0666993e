"""One running response: the engine's outputs become events, and the events a log that outlives any socket and server.

When a server dies, another goes on from what is stored (``chatsrv.recovery``). Clients may have seen a little more than
that; it is told again under the same numbers. So each token makes its own event, and what does not follow from prompt,
seed and tokens alone (waiting, preemption, steering, how it ended) is told only once it is stored.
"""

from __future__ import annotations

import asyncio
import time
from typing import Literal

from chatsrv.event_log import EventLog
from chatsrv.failures import answer_to
from chatsrv.logprobs import LogprobRenderer
from chatsrv.seam import EngineSeam, OutputStream
from chatsrv.steering import Steering
from chatsrv.store import Store
from chatsrv.turn import Turn
from chatsrv.wire import events
from chatsrv.wire.events import Told
from chatsrv.wire.items import Extras, Logprob, OutputText
from chatsrv.wire.response import IncompleteDetails, InputTokensDetails, ResponseError, ResponseUsage
from engine import FinishReason, Output, Usage

QUEUED_AFTER_S = 0.1
SAVE_TIMEOUT_S = 2.0

StopReason = Literal["cancelled", "steered", "server_stopped", "handed_over", "lost"]


class Generation:
    """A response from ``response.created`` to its one terminal event.

    ``run`` is the only writer of the log. Whatever ends the answer (the model, a limit, ``stop``, a failure), the
    engine's stream is closed, the turn is saved, and only then is the terminal event told: who has seen it may go on.

    Args:
        told: what another server has told of this response, if it began there.

    Attributes:
        left_at: when the last of its followers left.
        is_resumable: whether its client knows its id before it has ended.
    """

    def __init__(
        self, turn: Turn, stream: OutputStream, engine: EngineSeam, store: Store | None, told: Told | None = None
    ) -> None:
        self.turn = turn
        self.log = EventLog(told.entries if told else ())
        self.num_followers = 0
        self.left_at = 0.0
        self.is_resumable = True
        self._is_continued = told is not None
        self._stream = stream
        self._engine = engine
        self._store = store
        self._logprob_renderer = LogprobRenderer(engine.vocabulary)
        self._logprobs: list[Logprob] = []
        self._token_ids: list[int] = []
        self._num_told_tokens = 0
        self._usage: Usage | None = None
        self._finish_reason: FinishReason | None = None
        self._stop_reason: StopReason | None = None
        self._is_open = False
        self.steerings: list[Steering] = []
        self._consuming: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()
        self._saving: set[asyncio.Task[None]] = set()
        self._timing = Timing()
        if told is not None:
            self._take_up(told)

    @property
    def id(self) -> str:
        return self.turn.response.id

    @property
    def is_stored(self) -> bool:
        return self._store is not None

    def stop(self, reason: StopReason = "cancelled") -> None:
        """End the answer here. What was told until now stays."""
        if self._consuming is None:
            self._stop_reason = self._stop_reason or reason
        elif not self._consuming.done():
            self._stop_reason = self._stop_reason or reason
            self._consuming.cancel()

    @property
    def is_steerable(self) -> bool:
        """Whether the answer is still being written."""
        return self._consuming is not None and not self._consuming.done() and self._stop_reason != "cancelled"

    def steer(self, steering: Steering) -> None:
        """Take input for a successor, and end the answer here. The caller has seen to it that it is steerable."""
        self.steerings.append(steering)
        accepted = events.Steer(id=steering.id, previous_response_id=self.id)
        self._emit(events.SteerAccepted(steer=accepted), is_derived=False)
        self.stop("steered")

    def discard(self) -> None:
        """End the answer and write nothing more of it: its session is being deleted."""
        if self._store is not None:
            self._store.drop_turn(self.id)
        self._store = None
        self.stop()

    def leave(self) -> None:
        """The server stops: another, or the next, goes on with the answer. One to which nobody could return fails."""
        self.stop("handed_over" if self.is_stored and self.is_resumable else "server_stopped")

    @property
    def is_left(self) -> bool:
        """Whether it failed because the server stops."""
        return self._stop_reason == "server_stopped" and self._finish_reason is None

    def lose(self) -> None:
        """Another server has taken the response over: write nothing more."""
        self._store = None
        self.stop("lost")

    async def ended(self) -> None:
        """Wait for the terminal event."""
        await self._ended.wait()

    async def run(self) -> None:
        if self.log.is_empty:
            self._emit(events.Created(response=self.turn.response), is_derived=False)
        self._consuming = asyncio.create_task(self._consume(), name=f"consume {self.id}")
        if self._stop_reason is not None:
            self._consuming.cancel()
        await asyncio.wait([self._consuming], timeout=QUEUED_AFTER_S)
        if self.turn.response.status == "queued" and not self._consuming.done() and not self._is_continued:
            self._emit(events.Queued(response=self.turn.response), is_derived=False)
        await asyncio.wait([self._consuming])
        await self._stream.aclose()
        error = None if self._consuming.cancelled() else self._consuming.exception()
        if self._stop_reason in ("handed_over", "lost") and error is None and self._finish_reason is None:
            await self._hand_over()
        else:
            self._conclude(error)
            await self._finish()
        await asyncio.gather(*self._saving)
        self._ended.set()

    def _take_up(self, told: Told) -> None:
        """Stand where the stored log ends. An answer that was steered there goes no further."""
        self._token_ids = list(told.token_ids)
        self._num_told_tokens = len(told.token_ids)
        self._logprobs = [logprob for delta in told.deltas for logprob in delta.logprobs]
        self._is_open = "response.content_part.added" in told.types
        if self.turn.answer is not None:
            self.turn.answer.text = told.text
        if "response.in_progress" in told.types:
            self.turn.response.status = "in_progress"
        if "response.steer.accepted" in told.types:
            self._stop_reason = "steered"

    # -- while it runs ------------------------------------------------------------------------------------------------

    async def _consume(self) -> None:
        async for output in self._stream:
            self._start()
            if output.notice is not None:
                self._tell_notice(output)
            else:
                self._take(output)

    def _start(self) -> None:
        if self.turn.response.status == "queued":
            self.turn.response.status = "in_progress"
            self._emit(events.InProgress(response=self.turn.response))

    def _take(self, output: Output) -> None:
        self._usage = output.usage
        self._finish_reason = output.finish_reason or self._finish_reason
        answer = self.turn.answer
        if answer is None:
            return
        self._token_ids += output.token_ids
        self._logprobs += self._logprob_renderer.render(output.logprobs)
        if output.text:
            self._open()
            if not self._is_continued:
                self._timing.text_came()
            answer.text += output.text
            self._tell_text(answer.id, output)

    def _tell_text(self, item_id: str, output: Output) -> None:
        """Tell new text, with all tokens since the last text: some only began a character or a stop string."""
        first, self._num_told_tokens = self._num_told_tokens, len(self._token_ids)
        delta = events.TextDelta(item_id=item_id, delta=output.text, logprobs=self._logprobs[first:])
        self._emit(delta, tuple(self._token_ids[first:]), is_derived=len(output.token_ids) == 1)

    def _open(self) -> None:
        answer = self.turn.answer
        if self._is_open or answer is None:
            return
        self._is_open = True
        added = answer.as_output([])
        added.content = []
        self._emit(events.ItemAdded(item=added))
        self._emit(events.PartAdded(item_id=answer.id, part=OutputText(text="")))

    def _tell_notice(self, output: Output) -> None:
        if self._is_continued or not self.turn.request.includes("chatsrv.notices"):
            return
        if output.notice == "preempted":
            self._emit(events.Preempted(response_id=self.id), is_derived=False)
        elif output.notice == "resumed":
            self._emit(events.Resumed(response_id=self.id), is_derived=False)

    def _emit(self, event: events.Event, token_ids: tuple[int, ...] = (), is_derived: bool = True) -> None:
        """Log an event; one that does not follow from the tokens is told when it is stored, and what follows after."""
        if self._store is None:
            self.log.append(event, token_ids)
            return
        if not is_derived:
            self.log.hold()
        self._store.journal.append(self.id, self.log.append(event, token_ids))
        if not is_derived:
            task = asyncio.create_task(self._release_once_saved(self._store), name=f"save {self.id}")
            self._saving.add(task)
            task.add_done_callback(self._saving.discard)

    async def _release_once_saved(self, store: Store) -> None:
        await store.journal.flushed(self.turn.tag, 0.0 if store.journal.is_failing else SAVE_TIMEOUT_S)
        self.log.release()

    # -- how it ends --------------------------------------------------------------------------------------------------

    async def _hand_over(self) -> None:
        """Save how far it is, and then let another server go on."""
        self.log.abandon()
        if self._store is not None:
            await self._store.journal.flushed(self.turn.tag, SAVE_TIMEOUT_S)
            self._store.hand_over(self.id)

    def _conclude(self, error: BaseException | None) -> None:
        """Decide the final status."""
        response = self.turn.response
        if error is not None or (self._finish_reason is None and self._stop_reason is None):
            failure = error if isinstance(error, Exception) else RuntimeError("the engine's stream ended too early")
            response.status = "failed"
            response.error = ResponseError(code="server_error", message=answer_to(failure).message)
        elif self._finish_reason is None and self._stop_reason == "server_stopped":
            response.status = "failed"
            response.error = ResponseError(code="server_error", message="the server was stopped while it answered")
        elif self._finish_reason is None and self._stop_reason == "cancelled":
            response.status = "cancelled"
        elif self._finish_reason is None:
            response.status = "incomplete"
            response.incomplete_details = IncompleteDetails(reason="steered")
        elif self._finish_reason == "length" and self.turn.answer is not None:
            response.status = "incomplete"
            response.incomplete_details = IncompleteDetails(reason="max_output_tokens")
        else:
            response.status = "completed"
            response.completed_at = time.time()

    async def _finish(self) -> None:
        """Close the item, save the turn, and tell both once they are saved."""
        self.log.hold()
        response = self.turn.response
        if self.turn.answer is not None:
            await self._finish_answer()
        response.usage = self._final_usage()
        if self.turn.request.includes("chatsrv.timing"):
            self._timing.tell(self._extras(), len(self._token_ids))
        last = self.log.prepare(events.terminal(response))
        if self._store is not None:
            answer = [] if self.turn.answer is None else [self.turn.answer]
            self._store.finish_turn(self.turn.tag, answer, self.turn.record, last)
            if not await self._store.journal.flushed(self.turn.tag, SAVE_TIMEOUT_S):
                self._extras().saved = False
                last = self.log.prepare(events.terminal(response))
        self.log.publish(last)
        self.log.release()

    async def _finish_answer(self) -> None:
        answer = self.turn.answer
        assert answer is not None
        is_whole = self.turn.response.status == "completed"
        answer.status = "completed" if is_whole else "incomplete"
        answer.token_ids = await self._exact_token_ids(answer.text)
        if self._store is not None and (place := self.turn.prefix()) is not None:
            answer.prefix_key = place.key
            self._store.put_prefix(place)
        if is_whole:
            self._open()
        if not self._is_open:
            return
        message = answer.as_output(self._logprobs)
        part = message.content[0]
        self._emit(events.TextDone(item_id=answer.id, text=answer.text, logprobs=self._logprobs))
        self._emit(events.PartDone(item_id=answer.id, part=part))
        self._emit(events.ItemDone(item=message))
        self.turn.response.output = [message]

    async def _exact_token_ids(self, text: str) -> list[int] | None:
        """The drawn ids, for the next turn's prompt, if they say exactly what was told.

        They do not where a stop string was cut off, or half a character held back.
        """
        token_ids = self._token_ids
        while token_ids and token_ids[-1] in self._engine.model.eos_token_ids:
            token_ids = token_ids[:-1]
        return token_ids if await self._engine.decode(token_ids) == text else None

    def _final_usage(self) -> ResponseUsage | None:
        if self._usage is None:
            return None
        num_output_tokens = self._usage.completion_tokens if self.turn.answer is not None else 0
        return ResponseUsage(
            input_tokens=self._usage.prompt_tokens,
            output_tokens=num_output_tokens,
            total_tokens=self._usage.prompt_tokens + num_output_tokens,
            input_tokens_details=InputTokensDetails(cached_tokens=self._usage.cached_tokens),
        )

    def _extras(self) -> Extras:
        response = self.turn.response
        if not isinstance(response.chatsrv, Extras):
            response.chatsrv = Extras()
        return response.chatsrv


class Timing:
    """When the answer's text came."""

    def __init__(self) -> None:
        self._accepted = time.monotonic()
        self._first: float | None = None
        self._last = self._accepted

    def text_came(self) -> None:
        self._last = time.monotonic()
        if self._first is None:
            self._first = self._last

    def tell(self, extras: Extras, num_tokens: int) -> None:
        extras.ttft_s = None if self._first is None else round(self._first - self._accepted, 4)
        extras.tokens_per_s = None
        if self._first is not None and self._last > self._first and num_tokens > 1:
            extras.tokens_per_s = round((num_tokens - 1) / (self._last - self._first), 2)
