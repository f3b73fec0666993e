"""Keys are known by their hashes, and the file may change at any time."""

from __future__ import annotations

from pathlib import Path

import pytest

from chatsrv import keyring
from chatsrv.errors import Unauthorized
from chatsrv.keyring import LOCAL, Caller, Keyring, read_keys
from chatsrv.new_key import entry
from chatsrv.settings import SettingError

ADA, BOB = "ada-key", "bob-key"


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with Ada's key, whose changes are seen at once."""
    monkeypatch.setattr(keyring, "LOOK_INTERVAL_S", 0.0)
    path = tmp_path / "keys.toml"
    path.write_text(entry("ada", "user", ADA))
    return path


def test_keys_are_found_by_their_hash_and_not_held(path: Path) -> None:
    keys = Keyring(path)
    assert keys.find(ADA).role == "user"
    assert ADA not in path.read_text() + repr(vars(keys))
    for wrong in ("", ADA + " ", ADA.upper(), "\ud800"):
        with pytest.raises(Unauthorized):
            keys.find(wrong)


def test_without_a_file_everybody_is_the_local_owner() -> None:
    keys = Keyring(None)
    assert keys.is_open
    assert keys.find("") is keys.find("x") is keys.current(LOCAL) is LOCAL


def test_a_key_is_added_replaced_and_taken_away_while_the_server_runs(path: Path) -> None:
    keys = Keyring(path)
    ada = keys.find(ADA)
    path.write_text(path.read_text() + entry("bob", "admin", BOB))
    assert keys.find(BOB).role == "admin"
    path.write_text(entry("ada", "user", "a new key"))
    assert keys.find("a new key").owner == ada.owner
    with pytest.raises(Unauthorized):
        keys.current(ada)
    other = path.with_name("other")
    other.write_text(entry("bob", "user", BOB))
    other.rename(path)  # as editors save
    assert keys.find(BOB).role == "user"


@pytest.mark.parametrize("damage", ["[[keys]", "[[keys]]\nowner = 'x'\n", None])
def test_a_damaged_file_changes_nothing_until_it_is_repaired(
    path: Path, damage: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    keys = Keyring(path)
    if damage is None:
        path.unlink()
    else:
        path.write_text(damage)
    for _ in range(3):
        assert keys.find(ADA)
    assert caplog.text.count("the keys stay as they were") == 1
    path.write_text(entry("bob", "user", BOB))
    assert keys.find(BOB)
    with pytest.raises(Unauthorized):
        keys.find(ADA)


GOOD = entry("ada", "user", ADA)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (GOOD + GOOD.replace("user", "root"), r"`\$.keys\[1\].role`"),
        (GOOD.replace("ada", "a{}b"), r"`\$.keys\[0\].owner`"),
        (GOOD.replace("sha256", "key"), "`key`"),
        (GOOD.replace('sha256 = "', 'sha256 = "secret'), r"`\$.keys\[0\].sha256`"),
        (GOOD + GOOD, "holds a key twice"),
        ("ada user secret", "cannot be read"),
    ],
)
def test_a_bad_entry_is_named_without_its_key(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "keys"
    path.write_text(text)
    with pytest.raises(SettingError, match=says) as caught:
        read_keys(path)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_each_owner_has_a_salt_of_its_own_that_never_changes() -> None:
    assert Caller("a").salt == Caller("a", "admin", "key").salt
    assert len({Caller(owner).salt for owner in ("a", "b", "", "local")}) == 4


def test_the_salt_does_not_tell_the_owner() -> None:
    assert LOCAL.owner.encode() not in LOCAL.salt
    assert len(LOCAL.salt) == 32
