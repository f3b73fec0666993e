"""Keys that cannot be confused, and matches to the token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.prefix_cache import (
    MAX_CHILDREN_COMPARED,
    CachedBlock,
    PartialMatch,
    PrefixCache,
    child_key,
    root_key,
)

ROOT = root_key("model", b"salt")


def block(tokens: list[int], key: bool = False) -> CachedBlock:
    return CachedBlock(ROOT, tuple(tokens), child_key(ROOT, tokens) if key else None)


def test_keys_depend_on_model_salt_parent_and_tokens() -> None:
    keys = {
        root_key("model", b"a"),
        root_key("model", b"b"),
        root_key("other", b"a"),
        root_key("mode", b"la"),
        child_key(root_key("model", b"a"), [1, 2]),
        child_key(root_key("model", b"b"), [1, 2]),
        child_key(root_key("model", b"a"), [2, 1]),
        child_key(root_key("model", b"a"), [1]),
    }
    assert len(keys) == 8
    assert {len(key) for key in keys} == {32}, "whole SHA-256 digests, not 64-bit hashes"


@given(st.text(), st.binary(), st.text(), st.binary())
def test_model_and_salt_never_run_together(model: str, salt: bytes, other_model: str, other_salt: bytes) -> None:
    same = (model, salt) == (other_model, other_salt)
    assert (root_key(model, salt) == root_key(other_model, other_salt)) is same


def test_find_and_remove() -> None:
    cache = PrefixCache()
    content = block([1, 2, 3], key=True)
    assert cache.insert(7, content)
    assert content.key is not None
    assert content.key in cache
    assert cache.find(content.key) == 7
    assert cache.remove(7) == content
    assert cache.find(content.key) is None
    assert cache.remove(7) is None
    assert len(cache) == 0


def test_the_first_block_with_a_key_keeps_it() -> None:
    cache = PrefixCache()
    assert cache.insert(1, block([1, 2], key=True))
    assert not cache.insert(2, block([1, 2], key=True))
    assert not cache.insert(1, block([5, 6], key=True)), "a block stands for one content only"


def test_the_longest_common_beginning_wins() -> None:
    cache = PrefixCache()
    for number, tokens in enumerate(([1, 2, 9, 9], [1, 2, 3, 9], [1, 2, 3], [4, 2, 3, 4])):
        cache.insert(number, block(tokens))
    assert cache.find_partial(ROOT, [1, 2, 3, 4], skip=set()) == PartialMatch(2, 3)
    assert cache.find_partial(ROOT, [1, 2, 3, 4], skip={1, 2}) == PartialMatch(0, 2)
    assert cache.find_partial(ROOT, [5], skip=set()) is None
    assert cache.find_partial(ROOT, [], skip=set()) is None
    assert cache.find_partial(child_key(ROOT, [1]), [1, 2], skip=set()) is None


def test_the_work_of_a_partial_match_is_bounded() -> None:
    cache = PrefixCache()
    cache.insert(0, block([1, 2, 3, 4]))
    for number in range(1, MAX_CHILDREN_COMPARED + 1):
        cache.insert(number, block([1, 1000 + number]))
    match = cache.find_partial(ROOT, [1, 2, 3, 4], skip=set())
    assert match is not None
    assert match.num_tokens == 1, "older children are not looked at"
