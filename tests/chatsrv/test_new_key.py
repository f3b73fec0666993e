"""A new key is shown once, and its entry opens the door."""

from __future__ import annotations

from pathlib import Path

import pytest

from chatsrv.cli import main
from chatsrv.keyring import Keyring


def test_entries_are_appended_to_the_file_and_their_keys_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, keys = tmp_path / "keys.toml", []
    for owner, role in (("ada", "user"), ("bob@example.com", "admin"), ("ada", "user")):
        assert main(["key", owner, role]) == 0
        shown = capsys.readouterr()
        key = shown.err.strip()
        assert key not in shown.out
        with path.open("a") as file:
            file.write(shown.out)
        keys.append(key)
    assert len(set(keys)) == 3
    assert all(len(key) > 40 for key in keys)
    ada, bob, also_ada = map(Keyring(path).find, keys)
    assert ada.owner == also_ada.owner != bob.owner
    assert (ada.role, bob.role) == ("user", "admin")


@pytest.mark.parametrize("owner", ["", 'a"b', "a b", "x" * 65, "a\nb", "ä"])
def test_an_owner_that_cannot_be_is_refused(owner: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", owner, "user"]) == 2
    shown = capsys.readouterr()
    assert (shown.out, shown.err.count("\n")) == ("", 1)
