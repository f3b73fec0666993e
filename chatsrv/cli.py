"""The command line: ``chatsrv serve``, ``chatsrv chat`` and ``chatsrv models``."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence

from chatsrv.embedded import StoreStartError
from chatsrv.errors import Unavailable
from chatsrv.model_list import describe_models
from chatsrv.serve import AddressError, serve
from chatsrv.settings import PREFIX, ServerSettings, SettingError, SettingsReader
from chatsrv.terminal import Terminal
from engine import ConfigError, Engine, EngineConfig, ModelLoadError, list_models


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    reader = SettingsReader(ServerSettings, EngineConfig)
    options = _parser(reader).parse_args(arguments)
    try:
        if options.command == "chat":
            return _chat(options)
        if options.command == "models":
            return _models(reader, options)
        return _serve(reader, options)
    except (SettingError, ConfigError) as error:
        print(f"chatsrv: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser(reader: SettingsReader) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="chatsrv", description="A streaming chat server with its own engine.")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve the API and the web page")
    reader.add_flags(serve)
    chat = commands.add_parser("chat", help="talk to a running server from this terminal")
    chat.add_argument("--url", help=f"of the server; by default from {PREFIX}HOST and {PREFIX}PORT")
    chat.add_argument("--system", metavar="TEXT", help="system prompt")
    chat.add_argument("--temperature", type=float, metavar="NUMBER", help="0 always takes the likeliest token")
    chat.add_argument("--max-tokens", type=int, metavar="INT", help="length limit of an answer")
    chat.add_argument("--conversation", metavar="ID", help="go on with this conversation")
    models = commands.add_parser("models", help="list the models on this machine, and what they need of its memory")
    reader.add_flags(models)
    return parser


def _serve(reader: SettingsReader, options: argparse.Namespace) -> int:
    given = reader.read(vars(options), os.environ)
    settings, config = reader.make(ServerSettings, given), reader.make(EngineConfig, given)
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        serve(settings, lambda: Engine(config))
    except (AddressError, StoreStartError, ModelLoadError, Unavailable) as error:
        print(f"chatsrv: {error}", file=sys.stderr)
        return 1
    return 0


def _models(reader: SettingsReader, options: argparse.Namespace) -> int:
    given = reader.read(vars(options), os.environ)
    settings, config = reader.make(ServerSettings, given), reader.make(EngineConfig, given)
    logging.basicConfig(level=logging.ERROR)
    print(describe_models(list_models(config, [settings.data_dir.expanduser() / "models"]), config.block_size))
    return 0


def _chat(options: argparse.Namespace) -> int:
    environ = os.environ
    host, port = environ.get(f"{PREFIX}HOST", "127.0.0.1"), environ.get(f"{PREFIX}PORT", "8000")
    terminal = Terminal(
        options.url or f"http://{host}:{port}",
        {
            "instructions": options.system,
            "temperature": options.temperature,
            "max_output_tokens": options.max_tokens,
        },
        options.conversation,
    )
    return asyncio.run(terminal.run())


if __name__ == "__main__":
    sys.exit(main())
