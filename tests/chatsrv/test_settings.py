"""Settings come from flag, environment, file and default, in this order; what is wrong is one clear sentence."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from chatsrv.settings import ServerSettings, SettingError, SettingsReader, describe
from engine import EngineConfig


@pytest.fixture
def reader() -> SettingsReader:
    return SettingsReader(ServerSettings, EngineConfig)


def server(reader: SettingsReader, flags: dict[str, str | None], environ: dict[str, str]) -> ServerSettings:
    return reader.make(ServerSettings, reader.read(flags, environ))


def test_flag_before_environment_before_file_before_default(reader: SettingsReader, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text('port = 1\nhost = "::1"\nnum_blocks = 7\nenable_prefix_cache = false\n')
    flags: dict[str, str | None] = {"config": str(file), "port": "3", "host": None}
    given = reader.read(flags, {"CHATSRV_PORT": "2", "CHATSRV_LOG_LEVEL": "debug", "PATH": "x"})
    settings, config = reader.make(ServerSettings, given), reader.make(EngineConfig, given)
    assert (settings.port, settings.host, settings.log_level) == (3, "::1", "debug")
    assert (config.num_blocks, config.enable_prefix_cache, config.block_size) == (7, False, EngineConfig().block_size)


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"CHATSRV_PROT": "1"}, "unknown setting CHATSRV_PROT in the environment; did you mean CHATSRV_PORT?"),
        ({"CHATSRV_xyzzy": "1"}, "unknown setting CHATSRV_xyzzy"),
        ({"CHATSRV_PORT": "http"}, "CHATSRV_PORT must be a whole number, not 'http'"),
        ({"CHATSRV_PORT": "70000"}, "port must be from 0 to 65535, not 70000"),
        ({"CHATSRV_LOG_LEVEL": "loud"}, "CHATSRV_LOG_LEVEL must be one of debug, info, warning, error, not 'loud'"),
        ({"CHATSRV_ENABLE_PREFIX_CACHE": "maybe"}, "CHATSRV_ENABLE_PREFIX_CACHE must be true or false, not 'maybe'"),
        ({"CHATSRV_DISCONNECT_GRACE_S": "-1"}, "disconnect_grace_s must be a number of seconds, 0 or more, not -1"),
        ({"CHATSRV_DRAIN_TIMEOUT_S": "nan"}, "drain_timeout_s must be a number of seconds, 0 or more, not nan"),
        ({"CHATSRV_ALLOWED_HOSTS": "a.example, http://b.example"}, "without a scheme or path, not http://b.example"),
        ({"CHATSRV_HOST": "0.0.0.0"}, "host 0.0.0.0 can be reached from other machines, so api_keys must name a file"),
        ({"CHATSRV_HOST": "::"}, "or listen_without_keys be true"),
        ({"CHATSRV_HOST": "localhost.example"}, "can be reached from other machines"),
        ({"CHATSRV_CONFIG": "nowhere.toml"}, "the settings file nowhere.toml cannot be read"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(reader: SettingsReader, environ: dict[str, str], says: str) -> None:
    with pytest.raises(SettingError) as caught:
        server(reader, {}, environ)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_names_in_a_file_are_refused(reader: SettingsReader, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text("blok_size = 16\n")
    with pytest.raises(SettingError, match=r"unknown setting blok_size .* did you mean block_size"):
        reader.read({"config": str(file)}, {})


@pytest.mark.parametrize(
    ("variable", "text", "value"),
    [
        ("NUM_BLOCKS", "auto", None),
        ("NUM_BLOCKS", "12", 12),
        ("QUANTIZATION", "none", None),
        ("QUANTIZATION", "int8", "int8"),
        ("DTYPE", "auto", "auto"),
        ("AGEING_S", "2.5", 2.5),
        ("ENABLE_PREFIX_CACHE", "off", False),
    ],
)
def test_values_have_their_types(reader: SettingsReader, variable: str, text: str, value: Any) -> None:
    given = reader.read({}, {f"CHATSRV_{variable}": text})
    assert given == {variable.lower(): value}


@pytest.mark.parametrize(
    "environ",
    [
        {"CHATSRV_HOST": "::1"},
        {"CHATSRV_HOST": "127.8.9.1"},
        {"CHATSRV_HOST": "localhost"},
        {"CHATSRV_HOST": "0.0.0.0", "CHATSRV_API_KEYS": "keys.toml"},
        {"CHATSRV_HOST": "0.0.0.0", "CHATSRV_LISTEN_WITHOUT_KEYS": "true"},
    ],
)
def test_others_are_let_in_with_keys_or_when_that_is_asked_for(reader: SettingsReader, environ: dict[str, str]) -> None:
    assert server(reader, {}, environ).host == environ["CHATSRV_HOST"]


@pytest.mark.parametrize("kind", [ServerSettings, EngineConfig])
def test_every_setting_is_described(kind: type) -> None:
    assert set(describe(kind)) == {field.name for field in fields(kind)}
    assert all(describe(kind).values())


def test_help_names_flag_variable_and_default(reader: SettingsReader) -> None:
    parser = argparse.ArgumentParser()
    reader.add_flags(parser)
    text = " ".join(parser.format_help().split())
    assert "--port INT TCP port; 0 takes any free one, which is printed. [CHATSRV_PORT; 8000]" in text
