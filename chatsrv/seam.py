"""All that chatsrv uses of the engine, as protocols: narrow enough to become a network hop one day."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from engine import (
    CachedPrefix,
    ChatMessage,
    EngineStats,
    EngineTrace,
    ModelInfo,
    Output,
    Priority,
    SamplingParams,
    TracedBlock,
)


class OutputStream(Protocol):
    """Outputs of one request. Closing it aborts the request, in every state; closing twice does nothing."""

    def __aiter__(self) -> AsyncIterator[Output]: ...

    async def aclose(self) -> None: ...


class Health(Protocol):
    @property
    def alive(self) -> bool: ...

    @property
    def busy(self) -> bool: ...

    @property
    def last_step_age_s(self) -> float: ...


class EngineSeam(Protocol):
    """The engine as chatsrv sees it; ``engine.Engine`` in production, a script in tests."""

    @property
    def model(self) -> ModelInfo: ...

    @property
    def vocabulary(self) -> Sequence[bytes]:
        """Bytes that each token adds to the text."""
        ...

    async def encode(self, text: str) -> list[int]: ...

    async def decode(self, token_ids: Sequence[int]) -> str: ...

    async def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]: ...

    def check(self, prompt_token_ids: Sequence[int], params: SamplingParams) -> int: ...

    async def submit(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams,
        *,
        priority: Priority = "default",
        salt: bytes = b"",
        told_token_ids: Sequence[int] = (),
    ) -> OutputStream: ...

    def locate_prefix(self, token_ids: Sequence[int], salt: bytes = b"") -> CachedPrefix: ...

    def health(self) -> Health: ...

    def stats(self) -> EngineStats: ...

    def trace(self) -> EngineTrace: ...

    def inspect_block(self, block: int) -> TracedBlock: ...
