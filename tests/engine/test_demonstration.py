"""The demonstration shows what it promises, in order, and comes to an end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from engine.demonstration import NUM_BLOCKS, Demonstration
from engine.trace import EngineTrace

MAX_STEPS = 400


def play() -> Iterator[tuple[str, EngineTrace]]:
    """Scene and picture after each step."""
    demonstration = Demonstration(0.0)
    for number in range(MAX_STEPS):
        demonstration.step(number / 5)
        yield demonstration.scene, demonstration.trace()
        if demonstration.scene == "end":
            return
    raise AssertionError("it has no end")


def test_each_scene_shows_what_it_is_named_after() -> None:
    shown: dict[str, list[EngineTrace]] = {}
    for scene, trace in play():
        shown.setdefault(scene, []).append(trace)
    assert list(shown) == ["paging", "sharing", "copy_on_write", "preemption", "reuse", "end"]
    assert max(shown["paging"][-1].references) == 1
    assert max(shown["sharing"][-1].references) == 4
    assert any(trace.steps[-1].num_copied for trace in shown["copy_on_write"])
    assert [
        len(request.block_tables) for request in shown["copy_on_write"][5].requests if "three" in request.request_id
    ] == [3]
    preempted = [request for trace in shown["preemption"] for request in trace.steps[-1].preempted]
    assert preempted == ["question-4", "question-3"]
    swapped = [request for request in shown["preemption"][5].requests if request.swap_tables]
    assert [request.request_id for request in swapped] == ["question-4"]
    assert any(trace.steps[-1].num_swapped_in for trace in shown["preemption"])


def test_everybody_is_served_and_no_block_stays_held() -> None:
    *_, (_, last) = play()
    assert last.requests == ()
    assert set(last.references) == {0}
    assert len(last.states) == NUM_BLOCKS


def test_scattered_blocks_and_an_answer_from_the_cache() -> None:
    pictures = list(play())
    tables = [table for _, trace in pictures for request in trace.requests for table in request.block_tables]
    assert any(later < earlier for table in tables for earlier, later in pairwise(table))
    first = next(trace for scene, trace in pictures if scene == "reuse")
    (again,) = [request for request in first.requests if request.request_id == "question-5"]
    assert first.steps[-1].shares[0].num_prefill_tokens < again.num_tokens / 2


def test_it_is_the_same_each_time() -> None:
    assert list(play()) == list(play())


def test_its_gauges_count_what_it_does() -> None:
    demonstration = Demonstration(0.0)
    for number in range(MAX_STEPS):
        demonstration.step(number / 5)
    stats = demonstration.stats()
    assert stats.num_output_tokens == 100 + 76 * 2 + 70 + 3 * 30 + 30 + 24
    assert (stats.preemptions.swap, stats.preemptions.recompute) == (1, 1)
    assert 0.3 < stats.cache_hit_rate < 1
    assert demonstration.inspect_block(0).num_references == 0
