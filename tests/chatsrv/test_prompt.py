"""Prompts: what of a conversation the model is given, and what is left out when it is too long."""

from __future__ import annotations

import pytest

from chatsrv.errors import InvalidField
from chatsrv.prompt import PromptBuilder, chat_message, check_length
from chatsrv.records import ItemRecord
from chatsrv.wire.items import Role
from tests.fakes import FakeEngine


def _items(*turns: tuple[Role, str]) -> list[ItemRecord]:
    return [ItemRecord(id=f"msg_{number}", role=role, text=text) for number, (role, text) in enumerate(turns)]


async def _text(engine: FakeEngine, token_ids: list[int]) -> str:
    return await engine.decode(token_ids)


def test_developers_speak_as_the_system() -> None:
    (item,) = _items(("developer", "Be brief."))
    assert chat_message(item).role == "system"


def test_an_answer_keeps_the_ids_that_were_drawn() -> None:
    item = ItemRecord(id="msg_1", role="assistant", text=" ~", token_ids=[216, 110])
    assert chat_message(item).token_ids == (216, 110)
    (typed,) = _items(("user", " ~"))
    assert chat_message(typed).token_ids is None


async def test_instructions_stand_first() -> None:
    engine = FakeEngine()
    items = _items(("user", "Hi"))
    prompt = await PromptBuilder(engine).build("Be brief.", items, max_tokens=None, truncate=False)
    assert "system\nBe brief." in await _text(engine, prompt.token_ids)
    assert prompt.num_dropped_items == 0


async def test_empty_messages_but_the_user_s_are_left_out() -> None:
    engine = FakeEngine()
    items = _items(("system", ""), ("user", ""), ("assistant", ""), ("user", "Hi"))
    prompt = await PromptBuilder(engine).build(None, items, max_tokens=None, truncate=False)
    text = await _text(engine, prompt.token_ids)
    assert "system" not in text
    assert text.count("user\n") == 2
    assert text.count("assistant\n") == 1  # the one to be answered


async def _truncated(max_model_len: int, num_turns: int = 6, max_tokens: int | None = 10) -> tuple[str, int]:
    engine = FakeEngine(max_model_len=max_model_len)
    turns: list[tuple[Role, str]] = [("system", "Rules.")]
    for number in range(num_turns):
        turns += [("user", f"question {number}"), ("assistant", f"answer {number}")]
    items = _items(*turns, ("user", "last"))
    prompt = await PromptBuilder(engine).build(None, items, max_tokens=max_tokens, truncate=True)
    assert len(prompt.token_ids) + (max_tokens or 1) <= max_model_len
    return await _text(engine, prompt.token_ids), prompt.num_dropped_items


async def test_truncation_drops_as_few_of_the_oldest_turns_as_make_it_fit() -> None:
    text, num_dropped = await _truncated(max_model_len=160)
    assert "Rules." in text
    assert "last" in text
    assert "question 0" not in text
    assert "question 5" in text
    assert num_dropped % 2 == 0
    assert num_dropped > 0
    roomier, fewer = await _truncated(max_model_len=200)
    assert fewer < num_dropped
    assert len(roomier) > len(text)


async def test_what_fits_is_not_truncated() -> None:
    _, num_dropped = await _truncated(max_model_len=4000)
    assert num_dropped == 0


async def test_the_system_and_the_last_question_are_never_dropped() -> None:
    engine = FakeEngine(max_model_len=40)
    items = _items(("system", "Rules."), ("user", "old"), ("assistant", "old"), ("user", "x" * 60))
    with pytest.raises(InvalidField) as caught:
        await PromptBuilder(engine).build(None, items, max_tokens=None, truncate=True)
    assert caught.value.code == "context_length_exceeded"


async def test_without_truncation_a_long_prompt_is_refused() -> None:
    engine = FakeEngine(max_model_len=40)
    with pytest.raises(InvalidField, match="the model's limit is 40") as caught:
        await PromptBuilder(engine).build(None, _items(("user", "x" * 60)), max_tokens=None, truncate=False)
    assert caught.value.param == "input"


def test_a_prompt_must_leave_room_for_one_token() -> None:
    check_length(39, 40)
    with pytest.raises(InvalidField, match="at most 39"):
        check_length(40, 40, "prompt")
