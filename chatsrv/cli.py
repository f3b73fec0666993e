"""The command line: ``chatsrv serve``, ``chatsrv chat``, ``chatsrv key`` and ``chatsrv models``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

_COMMANDS = """
commands:
  serve   serve the API and the web page
  chat    talk to a running server from this terminal
  key     make an API key
  models  list the models on this machine, and what they need of its memory

`chatsrv COMMAND --help` tells more of each.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(
        prog="chatsrv",
        usage="chatsrv COMMAND [OPTION …]",
        description="A streaming chat server with its own engine.",
        epilog=_COMMANDS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=("serve", "chat", "key", "models"), help=argparse.SUPPRESS)
    command = parser.parse_args(given[:1]).command
    # Each imports for itself: loading torch takes seconds, and a chat needs none of it.
    if command == "chat":
        from chatsrv.terminal import main as run
    elif command == "key":
        from chatsrv.new_key import main as run
    elif command == "models":
        from chatsrv.model_list import main as run
    else:
        from chatsrv.serve import main as run
    return run(given[1:])


if __name__ == "__main__":
    sys.exit(main())
