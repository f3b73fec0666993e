"""The running server: engine, store, application and uvicorn put together, from the first signal to the last."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import uvicorn

from chatsrv import handshakes
from chatsrv.access import Access
from chatsrv.app import EngineFactory, create_app
from chatsrv.settings import ServerSettings


class AddressError(Exception):
    """The address cannot be listened on. The message is one sentence for the user."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        super().__init__(f"cannot listen on {host} port {port}: {error.strerror}")


SEND_BUFFER_BYTES = 128 * 1024
UNREAD_TIMEOUT_MS = 60_000
LAST_HANDSHAKES_S = 0.05
LAST_REQUESTS_S = 0.2
DRAIN_LOOK_S = 0.05

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Server:
    """uvicorn around the application. The address is taken before the model is loaded, and printed."""

    def __init__(self, settings: ServerSettings, make_engine: EngineFactory) -> None:
        self._settings = settings
        self._app = create_app(settings, make_engine)
        self._uvicorn = _Uvicorn(_uvicorn_config(Access(self._app), settings), self._on_listening)
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._hurrying = asyncio.Event()
        self.url = ""

    async def run(self, *, handle_signals: bool = False) -> None:
        """Start, serve, and close everything; a signal is understood at any time."""
        running = asyncio.current_task()
        assert running is not None
        with _signals(partial(self._on_signal, running)) if handle_signals else _no_signals():
            try:
                await self._run()
            except asyncio.CancelledError:
                if not self._stopping.is_set():
                    raise

    async def ready(self) -> None:
        """Wait until requests are answered."""
        await self._ready.wait()

    def stop(self) -> None:
        """Take no more work, let what runs end within ``drain_timeout_s``, and return from ``run``.

        After a second call nothing is waited for.
        """
        self._hurrying.set() if self._stopping.is_set() else self._stopping.set()

    async def _run(self) -> None:
        with _bind(self._settings.host, self._settings.port) as listener:
            self.url = _url(self._settings.host, listener.getsockname()[1])
            print(f"chatsrv: loading; the address will be {self.url}", flush=True)
            async with self._app.router.lifespan_context(self._app):
                serving = asyncio.create_task(self._uvicorn.serve(sockets=[listener]), name="uvicorn")
                stopping = asyncio.create_task(self._stopping.wait(), name="wait for stop")
                await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
                stopping.cancel()
                if not serving.done():
                    await self._close_door(listener)
                    await self._drain()
                    self._uvicorn.should_exit = True
                await serving

    async def _close_door(self, listener: socket.socket) -> None:
        """Refuse connections: any proxy takes another server then, for any request. What was on its way is served."""
        handshakes.begin_no_more(listener)
        await self._wait(LAST_HANDSHAKES_S)
        for server in self._uvicorn.servers:
            server.close()
        await self._wait(LAST_REQUESTS_S)

    async def _wait(self, duration_s: float) -> None:
        """For so long, but no longer than it may take to drain."""
        with suppress(TimeoutError):
            async with asyncio.timeout(min(duration_s, self._settings.drain_timeout_s)):
                await self._hurrying.wait()

    async def _drain(self) -> None:
        """Answers end, sockets leave, requests are served; at the time limit what still runs is handed over."""
        responses = self._app.state.services.responses
        responses.drain.begin()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_timeout_s):
                # uvicorn tells nobody when its last request has been served
                while (responses.num_running or self._uvicorn.server_state.tasks) and not self._hurrying.is_set():  # noqa: ASYNC110
                    await asyncio.sleep(DRAIN_LOOK_S)
        await responses.hand_over()
        self._uvicorn.force_exit = self._hurrying.is_set()

    def _on_listening(self) -> None:
        print(f"chatsrv: ready at {self.url}", flush=True)
        self._ready.set()

    def _on_signal(self, running: asyncio.Task[None]) -> None:
        self.stop()
        if not self._ready.is_set():
            running.cancel()


class _Uvicorn(uvicorn.Server):
    """Says when clients are no longer refused, and leaves signals to us.

    uvicorn raises signals again when it has closed, and we still have a store to close.
    """

    def __init__(self, config: uvicorn.Config, on_listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            for listener in sockets or ():
                listener.listen(self.config.backlog)  # uvloop does not tell of an error here
        except OSError as error:  # another program took the same address and was ready first
            raise AddressError(self.config.host, self.config.port, error) from None
        await super().startup(sockets)
        self._on_listening()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _uvicorn_config(app: object, settings: ServerSettings) -> uvicorn.Config:
    """Pings find dead peers; their long timeout spares a client whose machine is merely busy."""
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        host=settings.host,
        port=settings.port,
        lifespan="off",
        ws="websockets-sansio",
        # A message that is somewhat too large is read, so that it can be refused with a word and the socket goes on.
        ws_max_size=2 * settings.max_message_bytes,
        ws_per_message_deflate=False,
        ws_ping_interval=30.0,
        ws_ping_timeout=120.0,
        log_level=settings.log_level,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,  # what may run longer has had its time in draining
    )


@contextmanager
def _signals(handler: partial[None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


@contextmanager
def _no_signals() -> Iterator[None]:
    yield


def _bind(host: str, port: int) -> socket.socket:
    """Take the address; clients are refused, not kept waiting, until the model is loaded."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small frames without delay on those sockets only that say that they are TCP.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit both: what a client does not read costs little memory, and who takes nothing is cut off.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_TIMEOUT_MS)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise AddressError(host, port, error) from None
    return listener


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
