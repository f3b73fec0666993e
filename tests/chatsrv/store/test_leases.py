"""Who runs which response: one writer for each log, whatever becomes of the store in between."""

from __future__ import annotations

from chatsrv.ids import new_id, new_tag, tag_of
from chatsrv.records import ResponseRecord, Session
from chatsrv.store import Store, connect, keys
from chatsrv.wire import events
from chatsrv.wire.response import Response


def _response(response_id: str) -> Response:
    return Response(id=response_id, created_at=0.0, model="m", status="queued")


async def test_nothing_more_is_written_of_what_others_have_taken_over(redis_server: str) -> None:
    """Also where the heart, and not a write, is the first to reach the store again."""
    client = connect(redis_server)
    store = Store(client, session_ttl_s=60, events_ttl_s=60)
    lost: list[str] = []
    store.on_lost = lost.extend
    await store.start()
    response_id = new_id("resp", new_tag())
    tag, response = tag_of(response_id), _response(response_id)
    store.begin_turn(tag, Session(owner="ada"), [], ResponseRecord(response=response))
    assert await store.journal.flushed(tag, 5)
    await client.hset(keys.RUNNING, response_id, "another")
    store.journal.append(response_id, events.entry(events.Created(response=response), 0))
    store.leases._renewed_at = 0.0  # the store was away for longer than the lease lasts
    await store.leases.check()
    assert await store.journal.flushed(tag, 5)
    assert lost == [response_id]
    assert not await client.exists(keys.events(tag, response_id))
    assert await client.hget(keys.RUNNING, response_id) == b"another"
    await client.hdel(keys.RUNNING, response_id)
    await store.close()


async def test_what_ended_while_the_store_was_away_is_written_only_if_nobody_has_taken_it_over(
    redis_server: str,
) -> None:
    client = connect(redis_server)
    store = Store(client, session_ttl_s=60, events_ttl_s=60)
    await store.start()
    for claims in (False, True):
        response_id = new_id("resp", new_tag())
        tag, response = tag_of(response_id), _response(response_id)
        record = ResponseRecord(response=response)
        store.begin_turn(tag, Session(owner="ada"), [], record)
        assert await store.journal.flushed(tag, 5)
        if claims:
            await client.hset(keys.RUNNING, response_id, "another")
        response.status = "cancelled"
        store.finish_turn(tag, [], record, events.entry(events.terminal(response), 0))
        store.leases._renewed_at = 0.0
        assert await store.journal.flushed(tag, 5)
        assert await client.exists(keys.events(tag, response_id)) == (not claims)
        assert (await store.response("ada", response_id)).response.status == ("queued" if claims else "cancelled")
        assert await client.hget(keys.RUNNING, response_id) == (b"another" if claims else None)
        await client.hdel(keys.RUNNING, response_id)
    await store.close()
