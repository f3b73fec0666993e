"""Limits of a key stand over those of all keys."""

from __future__ import annotations

from chatsrv.limits import DEFAULT_LIMITS, NO_LIMITS, Limits


def test_a_value_goes_before_the_one_below_it() -> None:
    of_every_key = Limits(max_running=2, tokens_per_minute=100).over(DEFAULT_LIMITS)
    found = Limits(max_running=5, max_message_bytes=10).over(of_every_key)
    expected = Limits(
        max_running=5,
        max_message_bytes=10,
        tokens_per_minute=100,
        max_connections=DEFAULT_LIMITS.max_connections,
        max_queued=DEFAULT_LIMITS.max_queued,
    )
    assert found == expected
    assert NO_LIMITS.over(found) == found
    assert type(found) is Limits
