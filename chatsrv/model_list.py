"""``chatsrv models``: what is on this machine, as a table for the terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

from chatsrv.serve import read_settings
from chatsrv.settings import SettingError
from engine import ConfigError, FoundModel, list_models

HEADINGS = ("model", "architecture", "weights", "a token's KV", "blocks", "context", "sessions")


def main(arguments: Sequence[str]) -> int:
    """Print the table; returns the exit status."""
    logging.basicConfig(level=logging.ERROR)
    try:
        settings, config = read_settings("models", "List the models on this machine.", arguments)
    except (SettingError, ConfigError) as error:
        print(f"chatsrv: {error}", file=sys.stderr)
        return 2
    print(describe_models(list_models(config, [settings.data_dir.expanduser() / "models"]), config.block_size))
    return 0


def describe_models(models: Sequence[FoundModel], block_size: int) -> str:
    """Those that run with what they need, then the others with the reason.

    A session is a conversation as long as the context; shorter ones take less.
    """
    rows = [_row(model, block_size) for model in models if model.needs is not None]
    widths = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (HEADINGS, *rows)] if rows else []
    lines += [f"{model.name}: cannot run: {model.problem}" for model in models if model.needs is None]
    return "\n".join(lines) or "no models found"


def _row(model: FoundModel, block_size: int) -> tuple[str, ...]:
    needs = model.needs
    assert needs is not None
    return (
        model.name,
        needs.architecture,
        _bytes(needs.weight_bytes),
        _bytes(needs.block_bytes // block_size),
        f"{needs.num_blocks:,}",
        f"{needs.max_model_len:,}",
        f"{needs.num_sessions:,}",
    )


def _bytes(count: int) -> str:
    """Three digits and a unit: 270 MB."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
