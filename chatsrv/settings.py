"""Settings: each a field of a frozen dataclass, typed and described once; given by flag, environment or file.

A flag goes before the environment, the environment before the file, the file before the default. What nobody has
declared is refused, with the name that was probably meant.
"""

from __future__ import annotations

import argparse
import difflib
import ipaddress
import math
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeVar

PREFIX = "CHATSRV_"

_REDIS_SCHEMES = ("redis", "rediss", "unix", "redis+cluster", "rediss+cluster", "redis+sentinel")

T = TypeVar("T")


class SettingError(Exception):
    """A setting is unknown, or its value cannot be used. The message is one sentence for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How to serve.

    Attributes:
        host: address to listen on.
        port: TCP port; 0 takes any free one, which is printed.
        data_dir: where the embedded store keeps its files.
        redis_url: an external Redis or Valkey; empty starts the embedded one.
        api_keys: TOML file of API keys, to which `chatsrv key` adds; it is read again when it changes. Empty lets
            everybody in as one owner.
        listen_without_keys: listen beyond this machine though there are no API keys, so that whoever reaches the
            address may use it.
        allowed_hosts: further host names under which browsers may reach the server, separated by commas.
        session_ttl_s: seconds that a conversation is kept after its last use.
        events_ttl_s: seconds after its end that a response can be replayed.
        disconnect_grace_s: seconds that a stored response goes on when nobody follows it any more.
        drain_timeout_s: seconds that running answers have to end after SIGTERM; those that are left go on in the next
            server.
        max_message_bytes: size of one WebSocket message or HTTP body.
        log_level: debug, info, warning or error.
        log_format: text, or json: an object for each line, with the request's id and its owner.
        log_texts: write what people ask and are answered into the log, too.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    data_dir: Path = Path("~/.local/share/chatsrv")
    redis_url: str = ""
    api_keys: str = ""
    listen_without_keys: bool = False
    allowed_hosts: str = ""
    session_ttl_s: int = 30 * 24 * 3600
    events_ttl_s: int = 3600
    disconnect_grace_s: float = 60.0
    drain_timeout_s: float = 30.0
    max_message_bytes: int = 8 * 1024 * 1024
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"
    log_texts: bool = False

    def __post_init__(self) -> None:
        _require(0 <= self.port <= 65535, f"port must be from 0 to 65535, not {self.port}")
        for name in ("session_ttl_s", "events_ttl_s", "max_message_bytes"):
            _require(getattr(self, name) >= 1, f"{name} must be at least 1, not {getattr(self, name)}")
        _require(
            bool(self.api_keys) or self.listen_without_keys or is_loopback(self.host),
            f"host {self.host} can be reached from other machines, so api_keys must name a file of API keys, or "
            "listen_without_keys be true to let everybody in",
        )
        scheme = self.redis_url.partition("://")[0]
        _require(
            scheme in ("", *_REDIS_SCHEMES), f"redis_url must begin with one of {', '.join(_REDIS_SCHEMES)}, then ://"
        )
        for name in ("disconnect_grace_s", "drain_timeout_s"):
            value = getattr(self, name)
            _require(0 <= value < math.inf, f"{name} must be a number of seconds, 0 or more, not {value}")
        for host in filter(None, self.allowed_hosts.replace(" ", "").split(",")):
            _require("/" not in host, f"allowed_hosts must be names of hosts, without a scheme or path, not {host}")


class SettingsReader:
    """Reads the settings of some dataclasses, whose field names are distinct.

    Args:
        kinds: frozen dataclasses with defaults, described under ``Attributes:`` of their docstrings.
    """

    def __init__(self, *kinds: type) -> None:
        self._kinds = kinds
        self._fields = {field.name: (kind, field) for kind in kinds for field in fields(kind)}
        self._types = {name: typing.get_type_hints(kind)[name] for name, (kind, _) in self._fields.items()}

    def add_flags(self, parser: argparse.ArgumentParser) -> None:
        """Add ``--config FILE`` and a flag for each setting."""
        parser.add_argument("--config", metavar="FILE", help="TOML file with settings by their names below")
        for name, (kind, field) in self._fields.items():
            parser.add_argument(
                f"--{name.replace('_', '-')}",
                dest=name,
                metavar=_metavar(self._types[name]),
                help=f"{describe(kind)[name]} [{PREFIX}{name.upper()}; {_default(field)}]".replace("%", "%%"),
            )

    def read(self, flags: Mapping[str, str | None], environ: Mapping[str, str]) -> dict[str, Any]:
        """All given values, checked and typed.

        Raises:
            SettingError: one clear sentence.
        """
        given: dict[str, Any] = {}
        if path := flags.get("config") or environ.get(f"{PREFIX}CONFIG"):
            given |= self._from_file(Path(path))
        given |= self._from_environment(environ)
        for name, text in flags.items():
            if name in self._fields and text is not None:
                given[name] = parse(f"--{name.replace('_', '-')}", text, self._types[name])
        return given

    def make(self, kind: type[T], given: Mapping[str, Any]) -> T:
        """One of the dataclasses from the given values."""
        return kind(**{name: value for name, value in given.items() if self._fields[name][0] is kind})

    def table(self) -> list[tuple[str, str, str, str]]:
        """Rows of the settings table: variable, flag, default, description."""
        return [
            (f"{PREFIX}{name.upper()}", f"--{name.replace('_', '-')}", _default(field), describe(kind)[name])
            for name, (kind, field) in self._fields.items()
        ]

    def _from_environment(self, environ: Mapping[str, str]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for variable, text in environ.items():
            if not variable.startswith(PREFIX) or variable == f"{PREFIX}CONFIG":
                continue
            name = variable.removeprefix(PREFIX).lower()
            if name not in self._fields or variable != variable.upper():
                raise SettingError(f"unknown setting {variable} in the environment{self._hint(name, variable)}")
            given[name] = parse(variable, text, self._types[name])
        return given

    def _from_file(self, path: Path) -> dict[str, Any]:
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise SettingError(f"the settings file {path} cannot be read: {error}") from None
        for name in content:
            if name not in self._fields:
                raise SettingError(f"unknown setting {name} in {path}{self._hint(name, '')}")
        return {name: parse(f"{name} in {path}", _as_text(v), self._types[name]) for name, v in content.items()}

    def _hint(self, name: str, variable: str) -> str:
        close = difflib.get_close_matches(name, self._fields, n=1)
        if not close:
            return ""
        return f"; did you mean {PREFIX + close[0].upper() if variable else close[0]}?"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def parse(name: str, text: str, kind: Any) -> Any:
    """A value from its text, of a type such as ``int``, ``int | None``, ``bool``, ``Path`` or ``Literal``."""
    options = typing.get_args(kind) if typing.get_origin(kind) in (types.UnionType, typing.Union) else (kind,)
    if type(None) in options and text.lower() in ("", "none", "auto"):
        return None
    kind = next(option for option in options if option is not type(None))
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        if text not in choices:
            raise SettingError(f"{name} must be one of {', '.join(map(str, choices))}, not {text!r}")
        return text
    if kind is bool:
        return _parse_bool(name, text)
    try:
        return Path(text).expanduser() if kind is Path else kind(text)
    except ValueError:
        noun = {int: "a whole number", float: "a number"}[kind]
        raise SettingError(f"{name} must be {noun}, not {text!r}") from None


def describe(kind: type) -> dict[str, str]:
    """What the docstring says of each field under ``Attributes:``."""
    section = (kind.__doc__ or "").partition("Attributes:")[2]
    entries = re.findall(r"^ {8}(\w+): (.*(?:\n {12}.*)*)", section, re.MULTILINE)
    return {name: " ".join(text.replace("`", "").split()) for name, text in entries}


def _parse_bool(name: str, text: str) -> bool:
    words = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    if text.lower() not in words:
        raise SettingError(f"{name} must be true or false, not {text!r}")
    return words[text.lower()]


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _default(field: Field[Any]) -> str:
    if field.default is MISSING or field.default == "":
        return "no default"
    return "auto" if field.default is None else str(field.default)


def _metavar(kind: Any) -> str:
    options: Sequence[Any] = typing.get_args(kind) or (kind,)
    if typing.get_origin(kind) is Literal:
        return "|".join(map(str, options))
    first = options[0]
    return "|".join(map(str, typing.get_args(first))) if typing.get_origin(first) is Literal else first.__name__.upper()


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise SettingError(message)
