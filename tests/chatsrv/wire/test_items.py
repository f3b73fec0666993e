"""Messages as clients send them: the official client's own types go in, and what came out goes back in."""

from __future__ import annotations

import msgspec
import pytest
from openai.types.responses import ResponseOutputMessage

from chatsrv.errors import InvalidField, UnsupportedField
from chatsrv.wire import strict
from chatsrv.wire.create import CreateResponse
from chatsrv.wire.items import InputMessage, OutputMessage, OutputText

ANSWER = OutputMessage(
    id="msg_1", status="completed", content=[OutputText(text="Hello")], created_at=1, parent_id=None, response_id="r"
)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("Hi", "Hi"),
        (None, ""),
        ([], ""),
        ([{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}], "ab"),
    ],
)
def test_the_text_of_a_message(content: object, text: str) -> None:
    message = strict.decode(msgspec.json.encode({"role": "user", "content": content}), InputMessage)
    assert message.text == text


def test_an_answer_can_be_sent_back_as_it_came() -> None:
    message = strict.decode(msgspec.json.encode(ANSWER), InputMessage)
    assert (message.role, message.text) == ("assistant", "Hello")


def test_an_answer_is_what_the_official_client_expects() -> None:
    parsed = ResponseOutputMessage.model_validate(msgspec.json.decode(msgspec.json.encode(ANSWER)))
    assert parsed.content[0].text == "Hello"
    assert parsed.type == "message"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "root", "content": "x"}, "role"),
        ({"content": "x"}, "role"),
        ({"role": "user", "content": 7}, "content"),
        ({"role": "user", "content": [{"type": "input_image", "image_url": ""}]}, "content[0].type"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "content[0].text"),
        ({"role": "user", "content": "x", "colour": "red"}, "colour"),
    ],
)
def test_a_wrong_message_names_the_field(message: object, param: str) -> None:
    with pytest.raises(InvalidField) as caught:
        strict.decode(msgspec.json.encode(message), InputMessage)
    assert param in str(caught.value.param) + caught.value.message


def test_a_part_that_is_no_text_is_refused_as_such() -> None:
    message = {"role": "user", "content": [{"type": "input_text", "text": "x"}, {"type": "input_image"}]}
    with pytest.raises(UnsupportedField) as caught:
        strict.decode(msgspec.json.encode({"input": [message]}), CreateResponse)
    assert caught.value.param == "input[0].content[1].type"
    assert caught.value.message == "input[0].content[1].type: only parts of text are taken, not 'input_image'"
