"""The tree of a session's items: paths, branches, removal. Pure data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from chatsrv.errors import NotFound
from chatsrv.records import ItemRecord

T = TypeVar("T")


class ItemTree:
    """Items of one session in order of creation, linked by ``parent_id``."""

    def __init__(self, items: Iterable[ItemRecord]) -> None:
        self._items = {item.id: item for item in sorted(items, key=lambda item: item.created_ns)}

    def __contains__(self, item_id: str) -> bool:
        return item_id in self._items

    def __getitem__(self, item_id: str) -> ItemRecord:
        return self._items[item_id]

    @property
    def items(self) -> list[ItemRecord]:
        return list(self._items.values())

    @property
    def newest_ns(self) -> int:
        """When the newest item was created; 0 if there is none."""
        return max((item.created_ns for item in self._items.values()), default=0)

    def path(self, item_id: str | None) -> list[ItemRecord]:
        """From the root to this item. A lost ancestor ends the path; a damaged tree cannot make it endless."""
        path: dict[str, ItemRecord] = {}
        while item_id is not None and item_id in self._items and item_id not in path:
            path[item_id] = self._items[item_id]
            item_id = path[item_id].parent_id
        return list(path.values())[::-1]

    def children(self, item_id: str | None) -> list[ItemRecord]:
        return [item for item in self._items.values() if item.parent_id == item_id]

    def remove(self, item_id: str) -> list[ItemRecord]:
        """Take an item out; its children move to its parent. Returns the changed children."""
        removed = self._items.pop(item_id)
        moved = self.children(item_id)
        for child in moved:
            child.parent_id = removed.parent_id
        return moved


def page(values: Sequence[T], ids: Sequence[str], *, after: str | None, limit: int) -> tuple[list[T], bool]:
    """The ``limit`` values behind the one with id ``after``, and whether more follow.

    Raises:
        NotFound: there is none with this id.
    """
    start = start_after(after, ids, "item")
    return list(values[start : start + limit]), start + limit < len(ids)


def start_after(after: str | None, ids: Sequence[str], noun: str) -> int:
    """The position behind an id, where a page of a list begins; a list does not end where one has been deleted.

    Raises:
        NotFound: the id is not in the list.
    """
    if after is None:
        return 0
    if after not in ids:
        raise NotFound(f"after: no such {noun}", param="after", code=f"{noun}_not_found")
    return ids.index(after) + 1
