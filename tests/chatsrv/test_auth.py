"""Callers: who owns what, and whose cached blocks are kept apart."""

from __future__ import annotations

from chatsrv.auth import LOCAL, Caller


def test_each_owner_has_a_salt_of_its_own_that_never_changes() -> None:
    assert Caller("a").salt == Caller("a").salt
    assert len({Caller(owner).salt for owner in ("a", "b", "", "local")}) == 4


def test_the_salt_does_not_tell_the_owner() -> None:
    assert LOCAL.owner.encode() not in LOCAL.salt
    assert len(LOCAL.salt) == 32
