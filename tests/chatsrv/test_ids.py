"""Identifiers: random, of one form, and telling the tag of their session."""

from __future__ import annotations

import pytest

from chatsrv.ids import has_form, new_id, new_tag, tag_of


@pytest.mark.parametrize("kind", ["resp", "conv", "msg"])
def test_a_new_identifier_has_its_form_and_its_tag(kind: str) -> None:
    tag = new_tag()
    identifier = new_id(kind, tag)
    assert has_form(identifier, kind)
    assert tag_of(identifier) == tag
    assert len(identifier) == len(kind) + 1 + 32


def test_identifiers_do_not_repeat() -> None:
    tag = new_tag()
    assert len({new_id("msg", tag) for _ in range(1000)} | {new_tag() for _ in range(1000)}) == 2000


@pytest.mark.parametrize(
    "text",
    ["", "resp_", "conv_" + "a" * 32, "resp_" + "a" * 31, "resp_" + "a" * 33, "resp_" + "a" * 32 + "\n"]
    + ["resp_" + "a" * 31 + character for character in ":*{}/ é\0"],
)
def test_what_could_not_be_part_of_a_key_has_no_form(text: str) -> None:
    assert not has_form(text, "resp")
