"""The tokenizer's door."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.api import ChatMessage
from engine.errors import ConfigError, InvalidRequest
from engine.tokenizer import Tokenizer, read_template
from tests.engine.tiny_tokenizers import CHAT_TEMPLATE, byte_tokenizer, sentencepiece_tokenizer

USER = [ChatMessage("user", "a")]


def test_text_is_encoded_and_decoded() -> None:
    ours = Tokenizer(byte_tokenizer(), 300)
    assert ours.encode("a<|end|>") == [byte + 3 for byte in b"a<|end|>"]
    assert ours.decode(ours.encode("🌶 <|end|>")) == "🌶 <|end|>"
    assert ours.decode([0, 1, 100, 0xF0 + 3, 100]) == "a\ufffda"


def test_a_prompt_begins_as_the_model_expects() -> None:
    assert Tokenizer(byte_tokenizer(), 300).encode_prompt("a") == [100]
    sentencepiece = sentencepiece_tokenizer()
    ours = Tokenizer(sentencepiece, 300)
    assert ours.encode_prompt("the</s>")[0] == sentencepiece.bos_token_id
    assert ours.encode_prompt("the") == sentencepiece("the")["input_ids"]
    assert 2 not in ours.encode_prompt("the</s>")


def test_a_lone_surrogate_is_an_invalid_request() -> None:
    with pytest.raises(InvalidRequest, match="lone surrogate") as refused:
        Tokenizer(byte_tokenizer(), 300).encode("hi \ud83d")
    assert refused.value.field == "prompt"


def test_without_a_template_the_error_names_the_setting() -> None:
    with pytest.raises(InvalidRequest, match="chat_template"):
        Tokenizer(byte_tokenizer(), 300).encode_chat(USER)


def test_a_template_may_come_from_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "chat.jinja"
    path.write_text(CHAT_TEMPLATE, "utf-8")
    expected = Tokenizer(byte_tokenizer(chat_template=CHAT_TEMPLATE), 300).encode_chat(USER)
    for setting in (CHAT_TEMPLATE, str(path)):
        own = byte_tokenizer(chat_template="another")
        assert Tokenizer(own, 300, read_template(setting)).encode_chat(USER) == expected
    with pytest.raises(ConfigError, match=r"chat_template .* no file .*nowhere\.jinja"):
        read_template(str(tmp_path / "nowhere.jinja"))


@pytest.mark.parametrize("broken", ["{%bad", "{{ messages", "{{ messages | no_such_filter }}", "{% endfor %}"])
def test_a_template_that_is_no_jinja_stops_the_start(broken: str) -> None:
    with pytest.raises(ConfigError, match=r"the chat template is no Jinja .line 1: .*chat_template"):
        Tokenizer(byte_tokenizer(), 300, read_template(broken))


def test_of_several_templates_the_default_one_is_taken() -> None:
    expected = Tokenizer(byte_tokenizer(chat_template=CHAT_TEMPLATE), 300).encode_chat(USER)
    several = byte_tokenizer(chat_template={"tool_use": "{{ 'x' }}", "default": CHAT_TEMPLATE})
    assert Tokenizer(several, 300).encode_chat(USER) == expected
