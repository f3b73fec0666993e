"""The API keys: a TOML file that holds their hashes, and is read again when it has changed.

A key is 256 random bits, so one plain SHA-256 keeps it secret: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from chatsrv.errors import Unauthorized
from chatsrv.limits import DEFAULT_LIMITS, NO_LIMITS, Limits
from chatsrv.settings import SettingError

log = logging.getLogger("chatsrv")

LOOK_INTERVAL_S = 1.0

Role = Literal["user", "admin"]


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who may ask.

    Attributes:
        owner: whose conversations they are; safe as part of a store's key.
        key_id: which of the owner's keys was used; empty where there are no keys.
        limits: of this key.
    """

    owner: str
    role: Role = "user"
    key_id: str = ""
    limits: Limits = NO_LIMITS

    @property
    def salt(self) -> bytes:
        """Keeps the owner's part of the prefix cache apart, so that nobody can time what another has asked."""
        return hashlib.sha256(b"chatsrv prefix cache owner\0" + self.owner.encode()).digest()


LOCAL = Caller("local", "admin")


class KeyEntry(Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key in the file, with limits of its own. Several may be of one owner: an old and a new one, for instance."""

    owner: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.@-]{1,64}$")]
    role: Role
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]

    def caller(self, of_every_key: Limits) -> Caller:
        owner = hashlib.sha256(self.owner.encode()).hexdigest()[:32]
        return Caller(owner, self.role, self.sha256, self.over(of_every_key))


class KeyFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The whole file.

    Attributes:
        limits: of every key.
    """

    limits: Limits = NO_LIMITS
    keys: list[KeyEntry] = []


class Keyring:
    """Finds the caller of a key, by its hash, so that how long it takes tells nothing of the others.

    Args:
        path: of the file of keys; None lets everybody in as the local owner.

    Raises:
        SettingError: the file cannot be read, or is not of its form.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._callers: Mapping[str, Caller] = {}
        self._version: object = None
        self._next_look_at = 0.0
        self._revision = 0
        if path is not None:
            self._version = _version(path)
            self._callers = read_keys(path)

    @property
    def is_open(self) -> bool:
        """Whether no key is asked for."""
        return self._path is None

    @property
    def revision(self) -> int:
        """Another number once other keys are in force."""
        if self._path is not None:
            self._look(self._path)
        return self._revision

    def find(self, key: str) -> Caller:
        """
        Raises:
            Unauthorized: no such key.
        """
        return self._find(key_hash(key))

    def current(self, caller: Caller) -> Caller:
        """The caller as the file has it now.

        Raises:
            Unauthorized: the key has been taken away.
        """
        return self._find(caller.key_id)

    def _find(self, key_id: str) -> Caller:
        if self._path is None:
            return LOCAL
        self._look(self._path)
        found = self._callers.get(key_id)
        if found is None:
            raise Unauthorized("a valid API key is required, as Authorization: Bearer KEY")
        return found

    def _look(self, path: Path) -> None:
        """Read the file again if it has changed. What is wrong with it is logged, and the keys stay as they were."""
        now = time.monotonic()
        if now < self._next_look_at:
            return
        self._next_look_at = now + LOOK_INTERVAL_S
        version = _version(path)
        if version == self._version:
            return
        self._version = version
        try:
            self._callers = read_keys(path)
        except SettingError as error:
            log.error("%s; the keys stay as they were", error)
        else:
            self._revision += 1
            log.info("api_keys: %d keys are in force", len(self._callers))


def key_hash(key: str) -> str:
    """What the file holds of a key."""
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()


def read_keys(path: Path) -> dict[str, Caller]:
    """Callers by the hashes of their keys.

    Raises:
        SettingError: naming the entry at fault.
    """
    try:
        file = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), KeyFile)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingError(f"api_keys: {path} cannot be read: {error}") from None
    except msgspec.ValidationError as error:
        form = "`chatsrv key OWNER ROLE` makes an entry"
        raise SettingError(f"api_keys: {path} is not a file of keys: {error}; {form}") from None
    of_every_key = file.limits.over(DEFAULT_LIMITS)
    callers = {entry.sha256: entry.caller(of_every_key) for entry in file.keys}
    if len(callers) < len(file.keys):
        raise SettingError(f"api_keys: {path} holds a key twice")
    return callers


def _version(path: Path) -> object:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
