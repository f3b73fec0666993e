"""The engine room's feed: pictures of the running engine over a socket, as often as the reader wants."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.websockets import WebSocket, WebSocketDisconnect

from chatsrv.drain import SERVICE_RESTART, Drain
from chatsrv.errors import ErrorEvent, InvalidField
from chatsrv.failures import answer_to
from chatsrv.seam import EngineSeam
from chatsrv.services import services
from chatsrv.wire import strict
from engine import Demonstration, EngineStats, EngineTrace, Priority, Scene

DEFAULT_HZ = 4.0
MAX_HZ = 20.0


class EngineRate(msgspec.Struct, frozen=True, tag="engine.rate", forbid_unknown_fields=True):
    """How many pictures a second; fewer come where the reader or the engine is slow."""

    hz: Annotated[float, Meta(ge=0.1, le=MAX_HZ)]


class EngineInspect(msgspec.Struct, frozen=True, tag="engine.inspect", forbid_unknown_fields=True):
    block: Annotated[int, Meta(ge=0)]


class EngineDemonstrate(msgspec.Struct, frozen=True, tag="engine.demonstrate", forbid_unknown_fields=True):
    """Show the demonstration from its beginning, or the running engine again."""

    on: bool


class Gauges(msgspec.Struct, frozen=True):
    """Shares are from 0 to 1."""

    waste: float
    cache_hit_rate: float
    prompt_tokens_per_s: float
    output_tokens_per_s: float
    num_running: dict[Priority, int]
    num_waiting: dict[Priority, int]
    num_swap_preemptions: int
    num_recompute_preemptions: int


class EngineSnapshot(msgspec.Struct, frozen=True, tag="engine.snapshot"):
    """``time_s`` is on the clock of the steps' ``started_at``. Bytes are base64.

    ``scene`` names what the demonstration shows; None is the running engine.
    """

    time_s: float
    scene: Scene | None
    trace: EngineTrace
    gauges: Gauges


class EngineBlock(msgspec.Struct, frozen=True, tag="engine.block"):
    block: int
    key: str | None
    num_references: int
    age_steps: int


ReaderEvent = EngineRate | EngineInspect | EngineDemonstrate
FeedEvent = EngineSnapshot | EngineBlock | ErrorEvent


class LiveFeed:
    """One reader of the feed."""

    def __init__(self, socket: WebSocket, engine: EngineSeam, drain: Drain) -> None:
        self._socket = socket
        self._engine = engine
        self._drain = drain
        self._hz = DEFAULT_HZ
        self._demonstration: Demonstration | None = None

    async def serve(self) -> None:
        """Until the reader leaves."""
        await self._socket.accept()
        pictures = asyncio.create_task(self._send_pictures())
        try:
            while True:
                await self._receive(await self._socket.receive_text())
        except (WebSocketDisconnect, KeyError):
            pass  # KeyError is a binary frame, which is nothing that a reader of ours would send
        finally:
            pictures.cancel()
            await asyncio.gather(pictures, return_exceptions=True)

    async def _send_pictures(self) -> None:
        with suppress(WebSocketDisconnect, ConnectionError):
            while not self._drain.is_begun:
                await self._send(self._next_picture())
                await asyncio.sleep(1 / self._hz)
            await self._socket.close(SERVICE_RESTART)

    def _next_picture(self) -> EngineSnapshot:
        now = time.monotonic()
        if self._demonstration is None:
            return _snapshot(self._engine, now, None)
        self._demonstration.step(now)
        return _snapshot(self._demonstration, now, self._demonstration.scene)

    async def _receive(self, text: str) -> None:
        try:
            match strict.decode(text, ReaderEvent):  # type: ignore[arg-type]
                case EngineRate(hz):
                    self._hz = hz
                case EngineInspect(block):
                    await self._send(_inspect(self._demonstration or self._engine, block))
                case EngineDemonstrate(on):
                    self._demonstration = Demonstration(time.monotonic()) if on else None
        except Exception as error:
            await self._send(answer_to(error).event())

    async def _send(self, message: object) -> None:
        await self._socket.send_text(msgspec.json.encode(message).decode())


async def connect(socket: WebSocket) -> None:
    """``GET /v1/engine/live`` with an upgrade."""
    await LiveFeed(socket, services(socket).engine, services(socket).responses.drain).serve()


def _snapshot(engine: EngineSeam | Demonstration, now: float, scene: Scene | None) -> EngineSnapshot:
    return EngineSnapshot(now, scene, engine.trace(), _gauges(engine.stats()))


def _gauges(stats: EngineStats) -> Gauges:
    occupancy = stats.occupancy
    return Gauges(
        waste=occupancy.waste,
        cache_hit_rate=stats.cache_hit_rate,
        prompt_tokens_per_s=stats.prompt_tokens_per_s,
        output_tokens_per_s=stats.output_tokens_per_s,
        num_running=dict(occupancy.num_running),
        num_waiting=dict(occupancy.num_waiting),
        num_swap_preemptions=stats.preemptions.swap,
        num_recompute_preemptions=stats.preemptions.recompute,
    )


def _inspect(engine: EngineSeam | Demonstration, block: int) -> EngineBlock:
    try:
        found = engine.inspect_block(block)
    except IndexError:
        raise InvalidField("block", f"block: there is no block {block}") from None
    return EngineBlock(block, found.key, found.num_references, found.age_steps)
