"""``chatsrv key``: makes an API key. Only its hash is kept, so the key itself is shown this once."""

from __future__ import annotations

import argparse
import secrets
import sys
import tomllib
from collections.abc import Sequence

import msgspec

from chatsrv.keyring import KeyFile, key_hash

_DESCRIPTION = """\
Make an API key. Its entry for the file that the setting api_keys names goes to the standard output, the key itself,
which is kept nowhere, to the standard error:

  chatsrv key ada user >> keys.toml
"""


def main(arguments: Sequence[str]) -> int:
    """Make a key; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="chatsrv key", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("owner", help="whose conversations the key opens")
    parser.add_argument("role", choices=("user", "admin"), help="admins may also watch the engine and read the metrics")
    given = parser.parse_args(arguments)
    key = f"sk-chatsrv-{secrets.token_urlsafe(32)}"
    text = entry(given.owner, given.role, key)
    try:
        msgspec.convert(tomllib.loads(text), KeyFile)
    except (msgspec.ValidationError, tomllib.TOMLDecodeError):
        print("chatsrv: OWNER must be 1 to 64 letters, digits, _, ., @ or -", file=sys.stderr)
        return 2
    print(text)
    print(key, file=sys.stderr)
    return 0


def entry(owner: str, role: str, key: str) -> str:
    """A key's entry in the file."""
    return f'[[keys]]\nowner = "{owner}"\nrole = "{role}"\nsha256 = "{key_hash(key)}"\n'
