"""What is stored of a conversation, and how it looks on the wire."""

from __future__ import annotations

import time

from chatsrv.ids import has_form, new_tag, tag_of
from chatsrv.records import ItemRecord, chain, next_ns
from chatsrv.wire.items import InputMessage, InputPart


def test_messages_become_a_chain_of_items_of_one_session() -> None:
    tag = new_tag()
    parts = [InputPart(type="input_text", text="How "), InputPart(type="text", text="are you?")]
    messages = [InputMessage(role="system", content="Be brief."), InputMessage(role="user", content=parts)]
    first, second = chain(tag, messages, "msg_parent", 5 * 10**18, "resp_1")
    assert (first.parent_id, second.parent_id) == ("msg_parent", first.id)
    assert (first.text, second.text) == ("Be brief.", "How are you?")
    assert 5 * 10**18 < first.created_ns < second.created_ns  # though that is in a far future
    assert second.response_id == "resp_1"
    assert all(has_form(item.id, "msg") and tag_of(item.id) == tag for item in (first, second))


def test_a_new_item_is_of_now() -> None:
    before = time.time_ns()
    assert before <= next_ns(0) <= time.time_ns()


def test_questions_and_answers_have_parts_of_their_own_kind() -> None:
    question = ItemRecord(id="msg_1", role="user", text="Hi", created_ns=5 * 10**9).on_wire()
    answer = ItemRecord(id="msg_2", role="assistant", text="Hello").on_wire()
    assert type(question.content[0]).__name__ == "InputText"
    assert type(answer.content[0]).__name__ == "OutputText"
    assert question.created_at == 5
