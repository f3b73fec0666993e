"""``chatsrv serve``: settings from everywhere, then the server; what prevents the start becomes one sentence."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import uvloop

from chatsrv import logs, traces
from chatsrv.embedded import StoreStartError
from chatsrv.errors import Unavailable
from chatsrv.server import AddressError, Server
from chatsrv.settings import ServerSettings, SettingError, SettingsReader
from engine import ConfigError, Engine, EngineConfig, ModelLoadError


def main(arguments: Sequence[str]) -> int:
    """Serve until a signal ends it; returns the exit status."""
    try:
        settings, config = read_settings("serve", "Serve the API and the web page.", arguments)
        logs.set_up(settings)
        traces.set_up(os.environ)
        server = Server(settings, lambda: _engine(config))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server.run(handle_signals=True))
    except (SettingError, ConfigError) as error:
        return _fail(error, status=2)
    except (AddressError, StoreStartError, ModelLoadError, Unavailable) as error:
        return _fail(error, status=1)
    return 0


@asynccontextmanager
async def _engine(config: EngineConfig) -> AsyncIterator[Engine]:
    async with Engine(config) as engine:
        # What loading leaves behind lives as long as the process. A collection that walked it would hold up every
        # stream for some hundred milliseconds.
        gc.collect()
        gc.freeze()
        yield engine


def read_settings(command: str, description: str, arguments: Sequence[str]) -> tuple[ServerSettings, EngineConfig]:
    """Settings of a command that takes all of them, from its arguments, the environment and a file.

    Raises:
        SettingError, ConfigError: one clear sentence.
    """
    reader = SettingsReader(ServerSettings, EngineConfig)
    parser = argparse.ArgumentParser(prog=f"chatsrv {command}", description=description)
    reader.add_flags(parser)
    given = reader.read(vars(parser.parse_args(arguments)), os.environ)
    return reader.make(ServerSettings, given), reader.make(EngineConfig, given)


def _fail(error: Exception, status: int) -> int:
    print(f"chatsrv: {error}", file=sys.stderr)
    return status
