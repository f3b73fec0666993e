"""The engine as callers see it: submit a prompt, iterate over its outputs.

One asyncio task runs the loop: schedule, run the plan in the model thread, apply. Everything but the model's work
happens on the event loop, so requests, blocks and mailboxes need no lock.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self, TypeVar

from engine.admission import AdmissionLimits
from engine.api import CachedPrefix, ChatMessage, ModelInfo, Output, Priority, SamplingParams
from engine.block_manager import BlockManager
from engine.config import EngineConfig
from engine.continuation import ending_output, notice_output, take_up
from engine.errors import EngineError, EngineStopped, InvalidRequest, RequestFailed
from engine.loading import LoadedModel, load_model, stop_loading
from engine.mailbox import Mailbox
from engine.model_runner import ModelRunner
from engine.preemption import CostModel
from engine.prefix_cache import block_keys, root_key
from engine.request import Request, Status, TokenFacts
from engine.scheduler import Scheduler
from engine.sizing import choose_layout, give_back_memory, resolve_sizes
from engine.stats import EngineStats, StatsRecorder
from engine.trace import EngineTrace, TracedBlock, Tracer, inspect_block

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

LONG_TEXT_CHARS = 100_000
"""Tokenised in about a tenth of a second; longer texts wait for each other, and nobody waits for them."""


@dataclass(frozen=True, slots=True)
class EngineHealth:
    """Whether the loop advances. ``last_step_age_s`` counts from the last finished step, or from when work arrived."""

    alive: bool
    busy: bool
    last_step_age_s: float


class Engine:
    """One model, served to many. Use as an async context manager.

    Args:
        config: settings; None for a size means chosen from the memory that is there.
        load: brings the model; replaced in tests that need no weights.

    Raises:
        ConfigError, ModelLoadError: on entering.
    """

    def __init__(self, config: EngineConfig, load: Callable[[EngineConfig], LoadedModel] = load_model) -> None:
        self.config = config
        self._load = load
        self._model_thread = ThreadPoolExecutor(1, "model")
        self._text_threads = ThreadPoolExecutor(2, "tokenizer")
        self._long_text_thread = ThreadPoolExecutor(1, "long text tokenizer")
        self._mailboxes: dict[str, tuple[Request, Mailbox]] = {}
        self._work_arrived = asyncio.Event()
        self._loop_task: asyncio.Task[None] | None = None
        self._progress_at = time.monotonic()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._model_thread, self._set_up)
        except asyncio.CancelledError:
            stop_loading()
            raise
        self._loop_task = asyncio.create_task(self._run(), name="engine loop")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop_task is not None
        self._loop_task.cancel()
        await asyncio.wait([self._loop_task])
        self._end_all(EngineStopped("the engine has been closed"))
        self._model_thread.shutdown()
        self._text_threads.shutdown()
        self._long_text_thread.shutdown()

    def _set_up(self) -> None:
        loaded = self._load(self.config)
        give_back_memory()
        layout = choose_layout(self.config, loaded.model.layout(self.config.block_size), loaded.device)
        sizes = resolve_sizes(self.config, layout, loaded.device, loaded.max_position)
        self._tokenizer = loaded.tokenizer
        self._tokens = TokenFacts(loaded.tokenizer.vocabulary, loaded.eos_token_ids)
        self.model = ModelInfo(
            name=self.config.model,
            architecture=loaded.architecture,
            fingerprint=loaded.fingerprint,
            vocab_size=loaded.vocab_size,
            max_model_len=sizes.max_model_len,
            eos_token_ids=loaded.eos_token_ids,
            sampling=loaded.sampling,
        )
        self._runner = ModelRunner(loaded.model, layout, sizes.num_blocks, sizes.num_swap_blocks, loaded.device)
        self._limits = AdmissionLimits(self.config, sizes.num_blocks, sizes.max_model_len)
        self._manager = BlockManager(
            sizes.num_blocks, sizes.num_swap_blocks, self.config.block_size, self.config.enable_prefix_cache
        )
        self._scheduler = Scheduler(self.config, self._manager, CostModel(layout.block_bytes))
        self._stats = StatsRecorder(time.monotonic())
        self._tracer = Tracer()

    # --- text ---

    @property
    def vocabulary(self) -> Sequence[bytes]:
        """The bytes that each token id adds to the text; empty for control tokens."""
        return self._tokens.vocabulary

    async def encode(self, text: str) -> list[int]:
        """Token ids of plain text; nothing in it becomes a control token."""
        return await self._in_text_thread(self._tokenizer.encode, text, len(text))

    async def decode(self, token_ids: Sequence[int]) -> str:
        return await self._in_text_thread(self._tokenizer.decode, token_ids, len(token_ids))

    async def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        """The model's chat template over a conversation, ready for the next answer.

        Raises:
            InvalidRequest: the template refuses the conversation.
        """
        num_chars = sum(len(message.content) for message in messages)
        return await self._in_text_thread(self._tokenizer.encode_chat, messages, num_chars)

    async def _in_text_thread(self, function: Callable[[T], R], argument: T, length: int) -> R:
        """Tokenising megabytes takes seconds, which neither the event loop nor those with short texts have."""
        threads = self._text_threads if length <= LONG_TEXT_CHARS else self._long_text_thread
        return await asyncio.get_running_loop().run_in_executor(threads, function, argument)

    # --- requests ---

    def check(self, prompt_token_ids: Sequence[int], params: SamplingParams) -> int:
        """Refuse what could never run, as ``submit`` does.

        Returns:
            How many tokens the answer may have.

        Raises:
            InvalidRequest: it could not.
        """
        self._check_token_ids("prompt", prompt_token_ids)
        params.check_token_ids(self.model)
        return self._limits.max_tokens(len(prompt_token_ids), params)

    async def submit(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams,
        *,
        priority: Priority = "default",
        salt: bytes = b"",
        told_token_ids: Sequence[int] = (),
    ) -> OutputStream:
        """Queue a prompt.

        Args:
            prompt: text or token ids.
            salt: prompts share cached blocks only with prompts of the same salt.
            told_token_ids: beginning of the answer, drawn earlier with the same prompt, parameters and seed, here or
                in another process. It is not told again; what follows is what would have followed.

        Raises:
            InvalidRequest, QueueFull, EngineStopped: nothing was queued.
        """
        self._check_running()
        token_ids = (
            await self._in_text_thread(self._tokenizer.encode_prompt, prompt, len(prompt))
            if isinstance(prompt, str)
            else list(prompt)
        )
        max_tokens = self.check(token_ids, params)
        self._check_token_ids("told_token_ids", told_token_ids)
        if told_token_ids and (params.num_sequences > 1 or params.use_beam_search):
            raise InvalidRequest("told_token_ids", "told_token_ids begin one answer, not several sequences or beams")
        if params.seed is None:
            params = replace(params, seed=secrets.randbits(63))
        root = root_key(self.model.fingerprint, salt)
        request = Request(
            secrets.token_hex(8), token_ids, params, self._tokens, max_tokens=max_tokens, priority=priority, root=root
        )
        take_up(request, told_token_ids)
        self._check_running()
        mailbox = Mailbox()
        if request.sequences[0].finish_reason is not None:
            mailbox.put(ending_output(request))
            mailbox.close()
            return OutputStream(request.request_id, mailbox, mailbox.close)
        now = time.monotonic()
        if not self._scheduler.has_work:
            self._progress_at = now
        self._scheduler.submit(request, now)
        self._mailboxes[request.request_id] = (request, mailbox)
        self._work_arrived.set()
        return OutputStream(request.request_id, mailbox, lambda: self._abort(request, mailbox))

    def _check_token_ids(self, name: str, token_ids: Sequence[int]) -> None:
        if not all(0 <= token_id < self.model.vocab_size for token_id in token_ids):
            raise InvalidRequest(name, f"{name} has a token id outside 0 to {self.model.vocab_size - 1}")

    async def generate(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams,
        *,
        priority: Priority = "default",
        salt: bytes = b"",
    ) -> AsyncGenerator[Output, None]:
        """``submit`` and iterate; closing the generator aborts the request."""
        stream = await self.submit(prompt, params, priority=priority, salt=salt)
        try:
            async for output in stream:
                yield output
        finally:
            await stream.aclose()

    def _abort(self, request: Request, mailbox: Mailbox) -> None:
        self._scheduler.abort(request)
        self._mailboxes.pop(request.request_id, None)
        mailbox.close()

    def _check_running(self) -> None:
        if self._loop_task is None or self._loop_task.done():
            raise EngineStopped("the engine is not running")

    # --- state ---

    def stats(self) -> EngineStats:
        return self._stats.snapshot(self._scheduler, self._manager, time.monotonic())

    def trace(self) -> EngineTrace:
        """The blocks, the requests and the last steps, for those who want to watch."""
        return self._tracer.trace(self._manager, [*self._scheduler.running, *self._scheduler.waiting])

    def locate_prefix(self, token_ids: Sequence[int], salt: bytes = b"") -> CachedPrefix:
        """Where the beginning of a prompt, or of a finished turn, is cached."""
        keys = block_keys(root_key(self.model.fingerprint, salt), token_ids, self.config.block_size)
        num_device, num_cpu = self._manager.locate(keys)
        num_found = num_device + num_cpu
        return CachedPrefix(
            key=keys[num_found - 1].hex() if num_found else None,
            num_device_tokens=num_device * self.config.block_size,
            num_cpu_tokens=num_cpu * self.config.block_size,
        )

    def inspect_block(self, block: int) -> TracedBlock:
        """
        Raises:
            IndexError: there is no such block.
        """
        return inspect_block(self._manager, block)

    def health(self) -> EngineHealth:
        alive = self._loop_task is not None and not self._loop_task.done()
        busy = alive and self._scheduler.has_work
        return EngineHealth(alive, busy, time.monotonic() - self._progress_at if busy else 0.0)

    # --- the loop ---

    async def _run(self) -> None:
        try:
            while True:
                if not self._scheduler.has_work:
                    self._work_arrived.clear()
                    await self._work_arrived.wait()
                await self._step()
        except Exception:
            logger.exception("the engine loop has died")
            self._end_all(EngineStopped("the engine has died"))
            raise

    async def _step(self) -> None:
        """Three verbs: schedule, run, apply."""
        started = time.monotonic()
        step = self._scheduler.schedule(started)
        for request, notice in step.notices:
            self._tell(request, notice_output(request, notice))
        scheduled = time.monotonic()
        running = asyncio.get_running_loop().run_in_executor(self._model_thread, self._runner.run, step.plan)
        try:
            result = await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise
        except Exception:
            logger.exception("a step has failed; its requests end, the others go on")
            for request in self._scheduler.fail(step, time.monotonic()):
                self._close(request, RequestFailed("the model failed while computing this request"))
            return
        self._progress_at = time.monotonic()
        for request, told in self._scheduler.apply(step, result, self._progress_at):
            self._tell(request, told)
        for share in step.shares:
            if share.request.status is Status.FINISHED:
                self._close(share.request)
        now = time.monotonic()
        self._stats.record_step(step, result, scheduled - started, now - self._progress_at, now)
        self._tracer.record_step(step, started, now - started)

    def _tell(self, request: Request, told: Output | RequestFailed) -> None:
        if isinstance(told, RequestFailed):
            self._close(request, told)
            return
        _, mailbox = self._mailboxes[request.request_id]
        mailbox.put(told)
        self._stats.record_output(request, told, self._progress_at)

    def _close(self, request: Request, error: EngineError | None = None) -> None:
        """Aborted requests and failed ones have lost their mailbox already."""
        _, mailbox = self._mailboxes.pop(request.request_id, (None, None))
        if mailbox is not None:
            mailbox.close(error)

    def _end_all(self, error: EngineError) -> None:
        for request, mailbox in self._mailboxes.values():
            self._scheduler.abort(request)
            mailbox.close(error)
        self._mailboxes.clear()


class OutputStream(AsyncIterator[Output]):
    """Outputs of one request, of all its sequences, until the last has ended. ``request_id`` names it in traces.

    Raises (while iterating):
        RequestFailed: this request broke.
        EngineStopped: the engine ended before the request did.
    """

    def __init__(self, request_id: str, mailbox: Mailbox, abort: Callable[[], None]) -> None:
        self.request_id = request_id
        self._mailbox = mailbox
        self._abort = abort

    async def __anext__(self) -> Output:
        output = await self._mailbox.get()
        if output is None:
            raise StopAsyncIteration
        return output

    async def aclose(self) -> None:
        """Abort the request if it is still running. Its blocks are free at once. May be called again."""
        self._abort()
