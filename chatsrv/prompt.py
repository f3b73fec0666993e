"""From a conversation to the tokens that the model is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from chatsrv.errors import InvalidField
from chatsrv.records import ItemRecord
from chatsrv.seam import EngineSeam
from engine import ChatMessage


@dataclass(frozen=True, slots=True)
class Prompt:
    """A rendered prompt, and how many of the oldest items were left out to make it fit."""

    token_ids: list[int]
    num_dropped_items: int = 0


def chat_message(item: ItemRecord) -> ChatMessage:
    """An item as the chat template sees it. An answer keeps the ids the model drew."""
    role = "system" if item.role == "developer" else item.role
    return ChatMessage(role, item.text, None if item.token_ids is None else tuple(item.token_ids))


class PromptBuilder:
    """Renders conversations within the model's length."""

    def __init__(self, engine: EngineSeam) -> None:
        self._engine = engine

    async def build(
        self, instructions: str | None, items: Sequence[ItemRecord], *, max_tokens: int | None, truncate: bool
    ) -> Prompt:
        """Render a conversation that ends with what is to be answered.

        With ``truncate`` the oldest whole turns are left out, so that the prompt and ``max_tokens`` of answer fit;
        the system messages and everything from the last user message on always stay.

        Raises:
            InvalidField: the prompt is too long, with code ``context_length_exceeded``.
            engine.InvalidRequest: the chat template refuses the messages.
        """
        head = [ChatMessage("system", instructions)] if instructions else []
        kept = [item for item in items if item.text or item.role == "user"]
        prompt = await self._render(head, kept)
        max_model_len = self._engine.model.max_model_len
        if truncate:
            prompt = await self._truncate(head, kept, prompt, max_model_len - min(max_tokens or 1, max_model_len - 1))
        check_length(len(prompt.token_ids), max_model_len)
        return prompt

    async def _truncate(self, head: list[ChatMessage], items: list[ItemRecord], whole: Prompt, room: int) -> Prompt:
        """The fewest turns dropped that make it fit, found by bisection: each rendering costs a tokenisation."""
        if len(whole.token_ids) <= room:
            return whole
        starts = _turn_starts(items)
        low, high, best = 1, len(starts) - 1, None
        while low <= high:
            middle = (low + high) // 2
            kept = _without_before(items, starts[middle])
            prompt = await self._render(head, kept, len(items) - len(kept))
            if len(prompt.token_ids) <= room:
                best, high = prompt, middle - 1
            else:
                low = middle + 1
        if best is None:
            kept = _without_before(items, starts[-1]) if starts else items
            best = await self._render(head, kept, len(items) - len(kept))
        return best

    async def _render(self, head: list[ChatMessage], items: Sequence[ItemRecord], num_dropped: int = 0) -> Prompt:
        token_ids = await self._engine.encode_chat([*head, *map(chat_message, items)])
        return Prompt(token_ids, num_dropped)


def check_length(num_tokens: int, max_model_len: int, field: str = "input") -> None:
    """Refuse a prompt that leaves no room for a single token of answer."""
    if num_tokens >= max_model_len:
        raise InvalidField(
            field,
            f"{field}: the prompt has {num_tokens} tokens; the model's limit is {max_model_len} for prompt and answer "
            f"together, so at most {max_model_len - 1}",
            code="context_length_exceeded",
        )


def _turn_starts(items: Sequence[ItemRecord]) -> list[int]:
    """Where turns begin: at each user message that does not follow another one."""
    return [
        index
        for index, item in enumerate(items)
        if item.role == "user" and (index == 0 or items[index - 1].role != "user")
    ]


def _without_before(items: Sequence[ItemRecord], start: int) -> list[ItemRecord]:
    return [item for index, item in enumerate(items) if index >= start or item.role in ("system", "developer")]
