"""The Responses API in WebSocket mode: one socket, many lanes, and no frame that could end it by being wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing, suppress
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from chatsrv import steering
from chatsrv.account import Account
from chatsrv.drain import SERVICE_RESTART
from chatsrv.errors import Busy, InvalidField, InvalidJson, NotFound, NotResumable, Restarting
from chatsrv.failures import answer_to
from chatsrv.generation import Generation
from chatsrv.ids import has_form
from chatsrv.keyring import Caller
from chatsrv.lanes import Lanes
from chatsrv.patience import Patience
from chatsrv.responses import Responses
from chatsrv.turns import Recent
from chatsrv.wire import strict
from chatsrv.wire.create import ClientEvent, ResponseCancel, ResponseCreate, ResponseResume, ResponseSteer, StreamId
from chatsrv.wire.events import Entry, merge_deltas

log = logging.getLogger("chatsrv")

SEND_TIMEOUT_S = 30.0
SLOW_S = 1.0  # a send that takes longer shows a reader who does not keep up,
CATCH_UP_S = 5.0  # who for this long gets deltas merged
MAX_RECENT = 64
MAX_RESUMING = 64
TRY_AGAIN_LATER = 1013

_BREATH = 64  # frames sent before others get a turn


class Connection:
    """One client's socket."""

    def __init__(self, socket: WebSocket, caller: Caller, responses: Responses, account: Account) -> None:
        self._socket = socket
        self._caller = caller
        self._responses = responses
        self._account = account
        self._lanes = Lanes(self._answer, account)
        self._recent: Recent = {}
        self._active: dict[str, Generation] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._sending = asyncio.Lock()
        self._patience = Patience(SEND_TIMEOUT_S)
        self._slow_until = 0.0
        self._num_busy = 0
        self._became_idle = asyncio.Event()

    async def serve(self) -> None:
        """Until the client leaves, or has to."""
        await self._socket.accept()
        self._spawn(self._leave_when_idle(), "leave")
        try:
            while (message := await self._socket.receive())["type"] != "websocket.disconnect":
                await self._receive(message)
        except (WebSocketDisconnect, ConnectionError):
            pass
        finally:
            await self._lanes.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._patience.close()

    # -- what comes in ------------------------------------------------------------------------------------------------

    async def _receive(self, message: Any) -> None:
        stream_id = None
        try:
            raw = self._parse(message)
            stream_id = _stream_id(raw)
            event: ClientEvent = strict.convert(raw, ClientEvent)  # type: ignore[arg-type]
            await self._handle(event)
        except Exception as error:
            await self._refuse(error, stream_id)

    def _parse(self, message: Any) -> object:
        text = message.get("text")
        if text is None:
            raise InvalidJson("binary frames are not accepted; send JSON in text frames")
        self._account.check_size(len(text.encode()))
        if not text.strip():
            raise InvalidJson("the frame is empty; send a JSON object")
        raw = strict.parse(text)
        if not isinstance(raw, dict):
            raise InvalidJson("the frame is not a JSON object")
        return raw

    async def _handle(self, event: ClientEvent) -> None:
        match event:
            case ResponseCreate():
                event.check()
                self._lanes.put(event)
                self._num_busy += 1
            case ResponseCancel():
                self._cancel(event.response_id)
            case ResponseResume():
                self._check_room()
                self._spawn(self._resume(event), "resume")
            case ResponseSteer():
                await self._steer(event)

    def _cancel(self, response_id: str) -> None:
        """At once if it runs here: a create in the next frame must already find it stopped."""
        if generation := self._responses.running(self._caller, response_id):
            generation.stop()
        elif not has_form(response_id, "resp"):
            raise NotFound("no such response", param="response_id", code="response_not_found")
        elif response_id not in self._recent:
            self._check_room()
            self._spawn(self._cancel_elsewhere(response_id), "cancel")

    def _check_room(self) -> None:
        """A client that does not read what it asks for must not pile it up here."""
        if len(self._tasks) > MAX_RESUMING:
            raise Busy(f"{MAX_RESUMING} resumed or cancelled responses are open on this socket, the most it takes")

    async def _cancel_elsewhere(self, response_id: str) -> None:
        try:
            await self._responses.cancel(self._caller, response_id)
        except Exception as error:
            await self._refuse(error, None)

    async def _steer(self, event: ResponseSteer) -> None:
        """Steering reaches the responses that this socket runs."""
        generation = self._active.get(event.previous_response_id)
        if generation is None:
            await self._steer_failed("response_not_found", "no such response runs on this socket", event)
        elif message := steering.problem(event.input):
            await self._steer_failed("invalid_input", message, event)
        elif not generation.is_steerable:
            await self._steer_failed("response_already_completed", "the response has ended", event)
        elif len(generation.steerings) >= steering.MAX_PENDING:
            message = f"{steering.MAX_PENDING} submissions are pending, the most a response takes"
            await self._steer_failed("too_many_pending_steers", message, event)
        else:
            generation.steer(steering.Steering(generation.id, event.input))

    async def _steer_failed(self, code: steering.SteerErrorCode, message: str, event: ResponseSteer) -> None:
        failed = steering.failed(code, message, event.previous_response_id, event.input)
        await self._send(msgspec.json.encode(failed).decode())

    # -- what goes out ------------------------------------------------------------------------------------------------

    async def _answer(self, request: ResponseCreate) -> None:
        try:
            await self._answer_all(request)
        finally:
            self._done()

    async def _answer_all(self, request: ResponseCreate) -> None:
        """Generate a response and, as often as it was steered, its successor."""
        try:
            generation = await self._responses.create(self._caller, request, self._recent)
        except Exception as error:
            await self._refuse(error, request.stream_id)
            return
        while True:
            await self._follow(generation, request.stream_id)
            if not generation.steerings:
                return
            request = steering.successor(request, generation.id, generation.steerings)
            try:
                generation = await self._responses.create(self._caller, request, self._recent)
            except Exception as error:
                await self._give_back(generation, answer_to(error).message, request.stream_id)
                return

    async def _follow(self, generation: Generation, stream_id: str | None) -> None:
        if not generation.is_stored:
            self._remember(generation.id, generation.turn)
        self._active[generation.id] = generation
        try:
            await self._pump(self._responses.follow_running(generation), stream_id)
        finally:
            del self._active[generation.id]

    async def _give_back(self, generation: Generation, message: str, stream_id: str | None) -> None:
        """Return steering input whose successor could not be made."""
        for lost in generation.steerings:
            event = steering.failed("successor_creation_failed", message, generation.id, lost.input, lost.id)
            await self._send(_on_lane(msgspec.json.encode(event), stream_id))

    async def _resume(self, event: ResponseResume) -> None:
        self._num_busy += 1
        try:
            batches = self._responses.follow(self._caller, event.response_id, event.starting_after)
            if not await self._pump(batches, event.stream_id):
                raise NotResumable(
                    f"the response has ended, and no event of it follows number {event.starting_after}",
                    response=await self._responses.retrieve(self._caller, event.response_id),
                    code="nothing_to_resume",
                )
        except WebSocketDisconnect:
            pass  # the client left in the middle, as clients do
        except Exception as error:
            await self._refuse(error, event.stream_id)
        finally:
            self._done()

    async def _pump(self, batches: AsyncGenerator[list[Entry], None], stream_id: str | None) -> bool:
        """Send all; returns whether the client heard anything, if only that the server goes."""
        heard = False
        try:
            async with aclosing(batches):
                async for batch in batches:
                    heard = True
                    for position, entry in enumerate(merge_deltas(batch) if self._is_slow() else batch):
                        await self._send(_on_lane(entry.data, stream_id))
                        if position % _BREATH == _BREATH - 1:
                            await asyncio.sleep(0)
        except Restarting:
            await self._leave()
            heard = True
        return heard

    async def _refuse(self, error: Exception, stream_id: str | None) -> None:
        await self._send(_on_lane(msgspec.json.encode(answer_to(error).event()), stream_id))

    async def _send(self, text: str) -> None:
        """Send one frame; a client that takes none for ``SEND_TIMEOUT_S`` is closed, and may come back and resume."""
        async with self._sending:
            try:
                with self._patience:
                    await self._socket.send({"type": "websocket.send", "text": text})
            except TimeoutError:
                self._spawn(self._give_up(), "close slow socket")
                raise WebSocketDisconnect(TRY_AGAIN_LATER) from None
            except RuntimeError:  # it was closed while we waited
                raise WebSocketDisconnect(TRY_AGAIN_LATER) from None
            now = self._loop.time()
            if now - self._patience.began > SLOW_S:
                self._slow_until = now + CATCH_UP_S

    def _is_slow(self) -> bool:
        return self._loop.time() < self._slow_until

    def _done(self) -> None:
        self._num_busy -= 1
        if not self._num_busy:
            self._became_idle.set()

    async def _leave_when_idle(self) -> None:
        """When the server goes: the client may come back to another one, or to the next."""
        await self._responses.drain.begun()
        while self._num_busy:
            self._became_idle.clear()
            await self._became_idle.wait()
        await self._leave()

    async def _leave(self) -> None:
        with suppress(RuntimeError, WebSocketDisconnect):  # it was closed already
            await self._socket.close(SERVICE_RESTART, "the server restarts; resume")

    async def _give_up(self) -> None:
        log.warning("closing a socket whose client took nothing for %g s", SEND_TIMEOUT_S)
        await self._socket.close(TRY_AGAIN_LATER, "reading too slowly; resume")

    def _remember(self, response_id: str, turn: Any) -> None:
        self._recent[response_id] = turn
        while len(self._recent) > MAX_RECENT:
            del self._recent[next(iter(self._recent))]

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _on_lane(data: bytes, stream_id: str | None) -> str:
    """The event with its lane. Events are encoded once for all readers; only the lane differs."""
    return data.decode() if stream_id is None else f'{data[:-1].decode()},"stream_id":"{stream_id}"}}'


def _stream_id(raw: object) -> str | None:
    """The lane of a message that may be wrong elsewhere, for its error to be told there.

    Raises:
        InvalidField: the lane itself is wrong.
    """
    value = raw.get("stream_id") if isinstance(raw, dict) else None
    if value is None:
        return None
    try:
        return msgspec.convert(value, StreamId)
    except msgspec.ValidationError:
        message = "stream_id: must be 1 to 256 letters, digits, underscores, hyphens or periods"
        raise InvalidField("stream_id", message, code="invalid_stream_id") from None
