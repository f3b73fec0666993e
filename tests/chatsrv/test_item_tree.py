"""The tree of items: branches, removal, and trees that are damaged."""

from __future__ import annotations

import pytest

from chatsrv.errors import NotFound
from chatsrv.item_tree import ItemTree, page
from chatsrv.records import ItemRecord


def _item(name: str, parent: str | None, created: int) -> ItemRecord:
    return ItemRecord(id=name, role="user", text=name, parent_id=parent, created_ns=created)


def _ids(items: list[ItemRecord]) -> list[str]:
    return [item.id for item in items]


def _branched() -> ItemTree:
    """a - b - c, and an edit of b: d."""
    return ItemTree([_item("c", "b", 3), _item("a", None, 1), _item("d", "a", 4), _item("b", "a", 2)])


def test_items_stand_in_order_of_creation() -> None:
    assert _ids(_branched().items) == ["a", "b", "c", "d"]
    assert _branched().newest_ns == 4
    assert ItemTree([]).newest_ns == 0


def test_a_path_leads_from_the_root_along_one_branch() -> None:
    tree = _branched()
    assert _ids(tree.path("c")) == ["a", "b", "c"]
    assert _ids(tree.path("d")) == ["a", "d"]
    assert tree.path(None) == []


def test_children_are_alternatives_in_order_of_creation() -> None:
    tree = _branched()
    assert _ids(tree.children("a")) == ["b", "d"]
    assert _ids(tree.children(None)) == ["a"]


def test_children_of_a_removed_item_move_to_its_parent() -> None:
    tree = _branched()
    assert _ids(tree.remove("b")) == ["c"]
    assert _ids(tree.path("c")) == ["a", "c"]
    assert "b" not in tree


def test_children_of_a_removed_root_become_roots() -> None:
    tree = _branched()
    tree.remove("a")
    assert _ids(tree.children(None)) == ["b", "d"]


def test_a_damaged_tree_still_has_finite_paths() -> None:
    assert _ids(ItemTree([_item("a", "b", 1), _item("b", "a", 2)]).path("a")) == ["b", "a"]
    assert _ids(ItemTree([_item("c", "lost", 1)]).path("c")) == ["c"]


def test_pages_follow_each_other_and_tell_whether_more_follows() -> None:
    names = list("abcde")
    assert page(names, names, after=None, limit=2) == (["a", "b"], True)
    assert page(names, names, after="b", limit=2) == (["c", "d"], True)
    assert page(names, names, after="d", limit=2) == (["e"], False)
    assert page(names, names, after="e", limit=2) == ([], False)
    with pytest.raises(NotFound, match="after: no such item"):
        page(names, names, after="unknown", limit=2)
