"""JSON as we accept it: no duplicate keys, no NaN, no lone surrogates, no bottomless nesting, no unknown fields."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from chatsrv.errors import InvalidField, InvalidJson, UnknownField, UnsupportedField

T = TypeVar("T")

MAX_DEPTH = 64

_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
_WHERE = re.compile(r"(?P<what>.*) - at `(?:key` in `)?\$\.?(?P<path>.*)`", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(?P<name>.*)`", re.DOTALL)
_NOT_TEXT = re.compile(r"Invalid enum value '(?P<kind>.*)' - at `\$\.?(?P<path>.*content\[\d+\]\.type)`", re.DOTALL)


def decode(data: str | bytes, kind: type[T]) -> T:
    """Parse and check a message.

    Raises:
        InvalidJson, InvalidField: naming the field and its limit.
    """
    return convert(parse(data), kind)


def parse(data: str | bytes) -> object:
    """Parse JSON, refusing what the standard leaves to luck."""
    try:
        text = data if isinstance(data, str) else data.decode()
        value: object = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite, parse_int=_bounded
        )
    except UnicodeDecodeError:
        raise InvalidJson("the message is not UTF-8") from None
    except RecursionError:
        raise InvalidJson(f"the message nests deeper than {MAX_DEPTH} levels") from None
    except json.JSONDecodeError as error:
        raise InvalidJson(f"the message is not JSON: {error.msg} at character {error.pos}") from None
    _check_depth(value)
    if _SURROGATE_ESCAPE.search(text):
        _check_surrogates(value)
    return value


def convert(value: object, kind: type[T], *, from_text: bool = False) -> T:
    """Check a parsed message against a type of the protocol.

    Args:
        from_text: all values are text, as in a query, and numbers are read from it.
    """
    try:
        return msgspec.convert(value, kind, strict=not from_text)
    except msgspec.ValidationError as error:
        raise _explain(str(error)) from None


def _explain(message: str) -> InvalidField:
    """msgspec says ``Expected `int` >= 1 - at `$.field[0]```; we tell the field first and apart."""
    if part := _NOT_TEXT.fullmatch(message):
        path, kind = part["path"], part["kind"][:40]
        return UnsupportedField(path, f"{path}: only parts of text are taken, not {kind!r}")
    match = _WHERE.fullmatch(message)
    what, path = (match["what"], match["path"][:200]) if match else (message, "")
    if unknown := _UNKNOWN.fullmatch(what):
        param = _join(path, unknown["name"])[:200]
        return UnknownField(param, f"unknown field: {param}")
    if missing := _MISSING.fullmatch(what):
        param = _join(path, missing["name"])
        return InvalidField(param, f"{param}: required, but missing")
    what = what[:200]
    return InvalidField(path or None, f"{path}: {what}" if path else what)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result: dict[str, object] = {}
    for name, value in pairs:
        if name in result:
            raise InvalidJson(f"the key {name[:100]!r} appears twice in one object", param=name[:100])
        result[name] = value
    return result


def _no_constant(name: str) -> object:
    raise InvalidJson(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise InvalidJson(f"the number {digits[:40]} is beyond the range of a 64-bit float")
    return value


def _bounded(digits: str) -> int:
    if len(digits) > 20:
        raise InvalidJson(f"the integer {digits[:20]}… is beyond 64 bits")
    return int(digits)


def _check_depth(value: object) -> None:
    layer = [value]
    for _ in range(MAX_DEPTH):
        layer = [child for parent in layer for child in _children(parent)]
        if not layer:
            return
    raise InvalidJson(f"the message nests deeper than {MAX_DEPTH} levels")


def _check_surrogates(value: object, path: str = "") -> None:
    if isinstance(value, str) and _LONE_SURROGATE.search(value):
        path = path[:200]
        raise InvalidField(path or None, f"{path}: a lone surrogate (half of a UTF-16 pair) is no text")
    for name, child in _named_children(value):
        _check_surrogates(name, path)
        _check_surrogates(child, name if not path else f"{path}{name}" if name.startswith("[") else f"{path}.{name}")


def _children(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _named_children(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from ((f"[{index}]", child) for index, child in enumerate(value))
