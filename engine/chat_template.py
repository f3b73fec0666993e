"""A conversation as the model was trained to see it: its own Jinja template, tokenised safely.

Messages are rendered behind a veil (``engine.control_tokens``), so that no text becomes a control token. The model's
own earlier answers are spliced in as exactly the ids it drew: tokenising their text again may give other ids, which
the prefix cache does not hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError
from transformers.utils.chat_template_utils import render_jinja_template

from engine.api import ChatMessage
from engine.control_tokens import ControlTokens, StandIns
from engine.errors import ConfigError, InvalidRequest

ROLES = ("system", "developer", "user", "assistant", "tool")
PROBE = "probe"


class ChatTemplate:
    """Renders and tokenises whole conversations, always up to where the next answer begins.

    A template that refuses system messages, or leaves them out, gets the system text at the beginning of the first
    user message instead, with an empty line between.
    """

    def __init__(self, tokenizer: Any, source: str, control: ControlTokens) -> None:
        """
        Args:
            tokenizer: of transformers.
            source: the Jinja text.

        Raises:
            ConfigError: it is no Jinja.
        """
        # The template's variables. The tokenizer itself, tens of megabytes with a large vocabulary, is not kept.
        self._special_tokens = tokenizer.special_tokens_map
        self._source = source
        self._control = control
        self._folds_system = not self._takes_system()

    def encode(self, messages: Sequence[ChatMessage]) -> list[int]:
        """Token ids of the conversation, the opening of the next answer included.

        Raises:
            InvalidRequest: a role is unknown, a text cannot be tokenised, or the template refuses, in its own words.
        """
        self._check(messages)
        messages = self._without_empty_system(messages)
        if not messages:
            raise InvalidRequest("messages", "messages must hold at least one message that says something")
        if self._folds_system:
            messages = fold_system(messages)
        stand_ins = StandIns([self._source, *(message.content for message in messages)])
        veiled = [
            self._control.veil(message.content, stand_ins, is_answer=message.role == "assistant")
            for message in messages
        ]
        rendered, spliced = self._splice(messages, veiled, stand_ins.fresh())
        tokens = self._control.encode(stand_ins.lift(rendered))
        answers = iter([messages[index].token_ids or () for index in spliced])
        return [
            token_id
            for token in tokens
            for token_id in (next(answers) if token == self._control.splice_id else (token,))
        ]

    def _check(self, messages: Sequence[ChatMessage]) -> None:
        for message in messages:
            if message.role not in ROLES:
                raise InvalidRequest("messages", f"the role of a message must be one of {', '.join(ROLES)}")
            self._control.check("messages", message.content)

    @staticmethod
    def _without_empty_system(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
        """An empty system turn says nothing, but some templates refuse it."""
        return [message for message in messages if message.role != "system" or message.content.strip()]

    def _splice(self, messages: Sequence[ChatMessage], veiled: Sequence[str], mark: str) -> tuple[str, Sequence[int]]:
        """The respelled rendering with a splice token for each answer whose ids can stand in place of its text.

        They can where the template writes the answer as it is: the rendering with a mark in its place is the rendering
        with its text. Templates that trim answers or cut their thinking out get the text.

        Returns:
            The text, and the indices of the messages that are spliced, in order.
        """
        plain = self._render(messages, veiled)
        wanted = [index for index, message in enumerate(messages) if self._can_splice(message)]
        marks = {index: f"{mark}{index}{mark}" for index in wanted}
        if not self._writes_whole(messages, veiled, marks, plain):
            wanted = [i for i in wanted if self._writes_whole(messages, veiled, {i: marks[i]}, plain)]
        chosen = {index: marks[index] for index in wanted}
        rendered = self._control.respell(self._render(messages, _replaced(veiled, chosen)) if chosen else plain)
        for text in chosen.values():
            rendered = rendered.replace(text, self._control.splice)
        return rendered, wanted

    def _can_splice(self, message: ChatMessage) -> bool:
        """Whether these are an answer's ids, and none is a turn marker that the model was talked into."""
        ids = message.token_ids
        return message.role == "assistant" and bool(ids) and self._control.forged_ids.isdisjoint(ids or ())

    def _writes_whole(
        self, messages: Sequence[ChatMessage], veiled: Sequence[str], marks: Mapping[int, str], plain: str
    ) -> bool:
        rendered = self._render(messages, _replaced(veiled, marks))
        for index, mark in marks.items():
            rendered = rendered.replace(mark, veiled[index], 1)
        return rendered == plain

    def _render(self, messages: Sequence[ChatMessage], contents: Sequence[str]) -> str:
        conversation = [
            {"role": message.role, "content": content} for message, content in zip(messages, contents, strict=True)
        ]
        rendered: str
        try:
            (rendered,), _ = render_jinja_template(
                [conversation], chat_template=self._source, add_generation_prompt=True, **self._special_tokens
            )
        except TemplateSyntaxError as error:  # found by the first rendering, while loading
            raise ConfigError(
                f"the chat template is no Jinja (line {error.lineno}: {error.message}); chat_template can set another"
            ) from error
        except TemplateError as error:
            raise InvalidRequest("messages", f"the model's chat template refuses these messages: {error}") from error
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise InvalidRequest(
                "messages", f"the model's chat template cannot render these messages: {error}"
            ) from error
        return rendered

    def _takes_system(self) -> bool:
        probe = [ChatMessage("system", PROBE), ChatMessage("user", "")]
        try:
            return PROBE in self._render(probe, [message.content for message in probe])
        except InvalidRequest:
            return False


def fold_system(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """Put leading system messages at the beginning of the user message that follows them."""
    texts: list[str] = []
    for index, message in enumerate(messages):
        if message.role == "system":
            texts.append(message.content)
        elif message.role == "user" and texts:
            folded = ChatMessage("user", "\n\n".join([*texts, message.content]))
            return [folded, *messages[index + 1 :]]
        else:
            break
    return messages


def _replaced(contents: Sequence[str], replacements: Mapping[int, str]) -> list[str]:
    return [replacements.get(index, content) for index, content in enumerate(contents)]
