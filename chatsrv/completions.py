"""Chat and legacy completions: stateless answers, whole or streamed, in the shapes of the OpenAI API."""

from __future__ import annotations

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from chatsrv.drain import Drain
from chatsrv.errors import Restarting
from chatsrv.failures import answer_to
from chatsrv.logprobs import LogprobRenderer
from chatsrv.seam import EngineSeam, OutputStream
from chatsrv.wire.completion_answers import (
    DONE,
    ChatChoice,
    ChatChunk,
    ChatChunkChoice,
    ChatCompletion,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    CompletionUsage,
    PromptTokensDetails,
    TextChoice,
    TextChunk,
    TextCompletion,
    TextLogprobs,
)
from chatsrv.wire.items import Logprob
from chatsrv.wire.response import Tier
from engine import FinishReason, Output, Usage


@dataclass(slots=True)
class Choice:
    """One continuation as it grows, or what is new in it.

    Attributes:
        offset: characters of the tokens before it.
    """

    index: int
    text: str = ""
    offset: int = 0
    finish_reason: FinishReason | None = None
    stop_reason: str | int | None = None
    logprobs: list[Logprob] = field(default_factory=list)
    has_logprobs: bool = False


class Shape(ABC):
    """How an endpoint writes its answers."""

    prefix: str
    whole: type[ChatCompletion] | type[TextCompletion]
    chunk: type[ChatChunk] | type[TextChunk]

    def new_id(self) -> str:
        return self.prefix + secrets.token_urlsafe(18)

    @abstractmethod
    def choice(self, choice: Choice) -> ChatChoice | TextChoice:
        """A whole choice."""

    @abstractmethod
    def delta(self, choice: Choice, is_first: bool) -> ChatChunkChoice | TextChoice:
        """What is new in a choice."""


class ChatShape(Shape):
    prefix, whole, chunk = "chatcmpl-", ChatCompletion, ChatChunk

    def choice(self, choice: Choice) -> ChatChoice:
        return ChatChoice(**_common(choice), message=ChatMessage(content=choice.text), logprobs=self._logprobs(choice))

    def delta(self, choice: Choice, is_first: bool) -> ChatChunkChoice:
        delta = ChatDelta(
            role="assistant" if is_first else UNSET, content=choice.text if choice.text or is_first else UNSET
        )
        return ChatChunkChoice(**_common(choice), delta=delta, logprobs=self._logprobs(choice))

    def _logprobs(self, choice: Choice) -> ChatLogprobs | None:
        return ChatLogprobs(content=choice.logprobs) if choice.has_logprobs else None


class LegacyShape(Shape):
    prefix, whole, chunk = "cmpl-", TextCompletion, TextChunk

    def choice(self, choice: Choice) -> TextChoice:
        return TextChoice(**_common(choice), text=choice.text, logprobs=self._logprobs(choice))

    def delta(self, choice: Choice, is_first: bool) -> TextChoice:
        return self.choice(choice)

    def _logprobs(self, choice: Choice) -> TextLogprobs | None:
        if not choice.has_logprobs:
            return None
        tokens = [logprob.token for logprob in choice.logprobs]
        *offsets, _ = accumulate(map(len, tokens), initial=choice.offset)
        return TextLogprobs(
            tokens=tokens,
            token_logprobs=[logprob.logprob for logprob in choice.logprobs],
            top_logprobs=[{top.token: top.logprob for top in lp.top_logprobs} for lp in choice.logprobs],
            text_offset=offsets,
        )


class Completion:
    """One request being answered: several prompts at once, each with ``n`` continuations.

    Args:
        streams: one for each prompt.
        n: continuations of each.
        tier: the scheduling class that they run in.
        drain: when it is over, the rest is not waited for.
    """

    def __init__(
        self,
        shape: Shape,
        completion_id: str,
        engine: EngineSeam,
        streams: Sequence[OutputStream],
        n: int,
        tier: Tier,
        drain: Drain,
    ) -> None:
        self._shape = shape
        self._streams = streams
        self._n = n
        self._drain = drain
        self._renderer = LogprobRenderer(engine.vocabulary)
        self._usages: dict[int, Usage] = {}
        self._offsets: Counter[int] = Counter()
        self._envelope: dict[str, Any] = {
            "id": completion_id,
            "created": int(time.time()),
            "model": engine.model.name,
            "service_tier": tier,
        }

    async def whole(self) -> ChatCompletion | TextCompletion:
        choices = [Choice(index) for index in range(len(self._streams) * self._n)]
        async with aclosing(self._outputs()) as outputs:
            async for news in outputs:
                choice = choices[news.index]
                choice.text += news.text
                choice.logprobs += news.logprobs
                choice.has_logprobs |= news.has_logprobs
                choice.finish_reason, choice.stop_reason = news.finish_reason, news.stop_reason
        content: Any = list(map(self._shape.choice, choices))
        return self._shape.whole(**self._envelope, choices=content, usage=self._usage())

    async def chunks(self, *, include_usage: bool) -> AsyncGenerator[bytes, None]:
        """SSE frames up to ``[DONE]``. What breaks on the way is told in a frame, as the status is long sent."""
        begun: set[int] = set()
        usage = None if include_usage else UNSET
        try:
            async with aclosing(self._outputs()) as outputs:
                async for news in outputs:
                    choices: Any = [self._shape.delta(news, is_first=news.index not in begun)]
                    begun.add(news.index)
                    yield _data(self._shape.chunk(**self._envelope, choices=choices, usage=usage))
            if include_usage:
                yield _data(self._shape.chunk(**self._envelope, choices=[], usage=self._usage()))
        except Exception as error:
            yield _data(answer_to(error).answer())
        yield f"data: {DONE}\n\n".encode()

    async def aclose(self) -> None:
        await asyncio.gather(*(stream.aclose() for stream in self._streams))

    async def _outputs(self) -> AsyncGenerator[Choice, None]:
        """What is new in each choice, from all streams as it comes.

        Raises:
            Restarting: the server goes, and there is more to come.
        """
        queue: asyncio.Queue[Choice | Exception | Literal["end"]] = asyncio.Queue(maxsize=len(self._streams))
        readers = [asyncio.create_task(self._read(i, stream, queue)) for i, stream in enumerate(self._streams)]
        leaving = asyncio.create_task(self._leave(queue))
        num_running = len(readers)
        try:
            while num_running:
                news = await queue.get()
                if isinstance(news, Exception):
                    raise news
                if news == "end":
                    num_running -= 1
                else:
                    yield news
        finally:
            for task in (*readers, leaving):
                task.cancel()
            await asyncio.gather(*readers, leaving, return_exceptions=True)
            await self.aclose()

    async def _read(self, position: int, stream: OutputStream, queue: asyncio.Queue[Any]) -> None:
        try:
            async for output in stream:
                self._usages[position] = output.usage
                if output.notice is None and (output.text or output.logprobs or output.finish_reason):
                    await queue.put(self._news(position, output))
            await queue.put("end")
        except Exception as error:
            await queue.put(error)

    async def _leave(self, queue: asyncio.Queue[Any]) -> None:
        await self._drain.over()
        await queue.put(Restarting())

    def _news(self, position: int, output: Output) -> Choice:
        index = position * self._n + output.index
        logprobs = self._renderer.render(output.logprobs)
        offset = self._offsets[index]
        self._offsets[index] += sum(len(logprob.token) for logprob in logprobs)
        return Choice(
            index=index,
            text=output.text,
            offset=offset,
            finish_reason=output.finish_reason,
            stop_reason=output.stop_reason,
            logprobs=logprobs,
            has_logprobs=bool(logprobs),
        )

    def _usage(self) -> CompletionUsage:
        prompt = sum(usage.prompt_tokens for usage in self._usages.values())
        answer = sum(usage.completion_tokens for usage in self._usages.values())
        cached = sum(usage.cached_tokens for usage in self._usages.values())
        return CompletionUsage(
            prompt_tokens=prompt,
            completion_tokens=answer,
            total_tokens=prompt + answer,
            prompt_tokens_details=PromptTokensDetails(cached_tokens=cached),
        )


def _common(choice: Choice) -> dict[str, Any]:
    return {"index": choice.index, "finish_reason": choice.finish_reason, "stop_reason": choice.stop_reason}


def _data(value: object) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"
