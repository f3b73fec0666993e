"""An engine that follows a script: bytes for tokens, answers that tests enqueue, at a pace that tests set."""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

from engine import (
    PRIORITIES,
    CachedPrefix,
    ChatMessage,
    EngineStats,
    EngineStopped,
    EngineTrace,
    FinishReason,
    Histogram,
    InvalidRequest,
    ModelInfo,
    Occupancy,
    Output,
    PositionLogprobs,
    Priority,
    QueueFull,
    RequestFailed,
    SamplingParams,
    StepTimes,
    TokenLogprob,
    TracedBlock,
    TracedRequest,
    TracedShare,
    TracedStep,
    Usage,
)
from engine.block_pool import BlockCounts
from engine.detokenizer import Detokenizer
from engine.scheduler import PreemptionCounts

BEGIN, END = 256, 257
VOCABULARY = [bytes([value]) for value in range(256)] + [b"", b""]
BLOCK_SIZE = 16


@dataclass
class FakeHealth:
    alive: bool = True
    busy: bool = False
    last_step_age_s: float = 0.0


@dataclass
class Submission:
    """A request as the engine got it."""

    prompt: list[int]
    params: SamplingParams
    priority: Priority
    salt: bytes
    told: list[int] = field(default_factory=list)
    aborted: bool = False
    finished: bool = False

    @property
    def text(self) -> str:
        return bytes(token for token in self.prompt if token < 256).decode(errors="replace")


@dataclass
class FakeEngine:
    """The engine's door as ``chatsrv.seam.EngineSeam`` has it.

    Attributes:
        delay_s: time between tokens.
        submissions: all that was asked, in order.
        running: how many streams are open.
        preempted_after: tokens after which each answer is preempted, and resumed.
    """

    max_model_len: int = 4096
    fingerprint: str = "f00d"
    delay_s: float = 0.0
    max_num_waiting: int = 10_000
    health_now: FakeHealth = field(default_factory=FakeHealth)
    submissions: list[Submission] = field(default_factory=list)
    running: int = 0
    num_waiting: int = 0
    paused: bool = False
    preempted_after: int | None = None
    refuses_roles: frozenset[str] = frozenset()
    _script: deque[list[int] | Exception] = field(default_factory=deque)
    _seen: list[tuple[bytes, list[int]]] = field(default_factory=list)

    @property
    def model(self) -> ModelInfo:
        return ModelInfo(
            "fake", "FakeForCausalLM", self.fingerprint, len(VOCABULARY), self.max_model_len, frozenset({END})
        )

    @property
    def vocabulary(self) -> Sequence[bytes]:
        return VOCABULARY

    def enqueue(self, answer: str | Sequence[int] | Exception) -> None:
        """What the next request answers: text, token ids, or how it fails after its first token."""
        if isinstance(answer, str):
            answer = [*answer.encode(), END]
        self._script.append(answer if isinstance(answer, Exception) else list(answer))

    async def encode(self, text: str) -> list[int]:
        return list(text.encode())

    async def decode(self, token_ids: Sequence[int]) -> str:
        return b"".join(VOCABULARY[token_id] for token_id in token_ids).decode(errors="replace")

    async def encode_chat(self, messages: Sequence[ChatMessage]) -> list[int]:
        if not messages:
            raise InvalidRequest("messages", "messages must not be empty")
        tokens: list[int] = []
        for message in messages:
            if message.role in self.refuses_roles:
                raise InvalidRequest("messages", f"the chat template refuses the role {message.role}")
            content = message.content.encode() if message.token_ids is None else message.token_ids
            tokens += [BEGIN, *f"{message.role}\n".encode(), *content, END]
        return [*tokens, BEGIN, *b"assistant\n"]

    def check(self, prompt_token_ids: Sequence[int], params: SamplingParams) -> int:
        room = self.max_model_len - len(prompt_token_ids)
        if room < (params.max_tokens or 1):
            message = f"max_tokens and prompt must be below {self.max_model_len} tokens"
            raise InvalidRequest("max_tokens" if room >= 1 else "prompt", message, "context_length_exceeded")
        return params.max_tokens or room

    async def submit(
        self,
        prompt: str | Sequence[int],
        params: SamplingParams,
        *,
        priority: Priority = "default",
        salt: bytes = b"",
        told_token_ids: Sequence[int] = (),
    ) -> FakeStream:
        if not self.health_now.alive:
            raise EngineStopped("the engine has stopped")
        if self.running >= self.max_num_waiting:
            raise QueueFull(f"{self.max_num_waiting} requests are waiting", retry_after_s=1.5)
        tokens = list(prompt.encode()) if isinstance(prompt, str) else list(prompt)
        self.check(tokens, params)
        submission = Submission(tokens, params, priority, salt, list(told_token_ids))
        self.submissions.append(submission)
        answers = [self._next_answer(submission) for _ in range(params.n)]
        return FakeStream(self, submission, answers, self._lookup(salt, tokens))

    def health(self) -> FakeHealth:
        return self.health_now

    def stats(self) -> EngineStats:
        return _stats({"priority": 0, "default": self.running, "flex": 0}, dict.fromkeys(PRIORITIES, self.num_waiting))

    def locate_prefix(self, token_ids: Sequence[int], salt: bytes = b"") -> CachedPrefix:
        num_cached = max((_common(token_ids, seen) for key, seen in self._seen if key == salt), default=0)
        num_found = num_cached // BLOCK_SIZE * BLOCK_SIZE
        key = hashlib.sha256(salt + repr(token_ids[:num_found]).encode()).hexdigest() if num_found else None
        return CachedPrefix(key, num_found, 0)

    def _next_answer(self, submission: Submission) -> list[int] | Exception:
        if self._script:
            return self._script.popleft()
        return [*b"You said: ", *submission.text.rsplit("user\n", 1)[-1].removesuffix("assistant\n").encode(), END]

    def _lookup(self, salt: bytes, tokens: list[int]) -> int:
        """Tokens of full blocks that an earlier prompt or answer with this salt began with."""
        cached = max((_common(tokens, seen) for key, seen in self._seen if key == salt), default=0)
        return min(cached, len(tokens) - 1) // BLOCK_SIZE * BLOCK_SIZE

    def remember(self, salt: bytes, tokens: list[int]) -> None:
        self._seen.append((salt, tokens))


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right)))


class FakeStream:
    """Outputs of one request; sequences take turns."""

    def __init__(
        self, engine: FakeEngine, submission: Submission, answers: list[list[int] | Exception], cached_tokens: int
    ) -> None:
        self._engine = engine
        self._submission = submission
        self._outputs = self._play(answers, cached_tokens)
        self._is_open = True
        engine.running += 1

    def __aiter__(self) -> AsyncIterator[Output]:
        return self._outputs

    async def aclose(self) -> None:
        if self._is_open:
            self._is_open = False
            self._engine.running -= 1
            self._submission.aborted = not self._submission.finished
            await self._outputs.aclose()

    async def _play(self, answers: list[list[int] | Exception], cached_tokens: int) -> AsyncIterator[Output]:
        room = self._engine.max_model_len - len(self._submission.prompt)
        sequences = [_FakeSequence(index, answer, self._submission, room) for index, answer in enumerate(answers)]
        usage = Usage(len(self._submission.prompt), 0, cached_tokens)
        yield Output(0, (), "", None, usage, notice="started")
        while any(sequence.is_running for sequence in sequences):
            for sequence in [sequence for sequence in sequences if sequence.is_running]:
                await self._wait()
                if usage.completion_tokens == self._engine.preempted_after:
                    yield Output(0, (), "", None, usage, notice="preempted")
                    yield Output(0, (), "", None, usage, notice="resumed")
                usage = Usage(usage.prompt_tokens, usage.completion_tokens + 1, cached_tokens)
                yield sequence.step(usage)
        for sequence in sequences:
            self._engine.remember(self._submission.salt, [*self._submission.prompt, *sequence.tokens])
        self._submission.finished = True

    async def _wait(self) -> None:
        await asyncio.sleep(self._engine.delay_s)
        while True:
            if not self._engine.paused:
                break
            await asyncio.sleep(0.002)


class _FakeSequence:
    def __init__(self, index: int, answer: list[int] | Exception, submission: Submission, room: int) -> None:
        self._index = index
        self._answer = answer
        self._params = submission.params
        scripted = 1 if isinstance(answer, Exception) else len(answer)  # scripts may be longer than the model takes
        self._room = submission.params.max_tokens or max(room, scripted)
        self._detokenizer = Detokenizer(VOCABULARY, submission.params.stop)
        self.tokens = list(submission.told)
        self.is_running = True
        for token in self.tokens:
            self._detokenizer.push(token)

    def step(self, usage: Usage) -> Output:
        if self.tokens and (reason := self._finish_reason(self.tokens[-1])) is not None:  # it had all been told
            self.is_running = False
            return Output(self._index, (), "", reason, usage, stop_reason=self._detokenizer.matched_stop)
        if isinstance(self._answer, Exception):
            if self.tokens:
                raise self._answer if isinstance(self._answer, RequestFailed | EngineStopped) else RequestFailed("x")
            self._answer, token = self._answer, ord("?")
        else:
            token = self._answer[len(self.tokens)] if len(self.tokens) < len(self._answer) else END
        self.tokens.append(token)
        text = self._detokenizer.push(token)
        reason = self._finish_reason(token)
        if reason is not None:
            self.is_running = False
            text += self._detokenizer.finish()
        return Output(
            self._index,
            (token,),
            text,
            reason,
            usage,
            stop_reason=self._detokenizer.matched_stop,
            logprobs=self._logprobs(token),
        )

    def _finish_reason(self, token: int) -> FinishReason | None:
        if (token == END and not self._params.ignore_eos) or self._detokenizer.matched_stop is not None:
            return "stop"
        return "length" if len(self.tokens) >= self._room else None

    def _logprobs(self, token: int) -> tuple[PositionLogprobs, ...]:
        if self._params.logprobs is None:
            return ()
        top = tuple(TokenLogprob((token + i) % 256, -0.5 - i) for i in range(self._params.logprobs))
        return (PositionLogprobs(TokenLogprob(token, -0.5), top),)


NUM_BLOCKS = 64


class WatchedEngine(FakeEngine):
    """Also shows an inside: two requests that share their first block, and one that waits."""

    def trace(self) -> EngineTrace:
        states = bytes([2, 2, 2, 2, 1, 1] + [0] * (NUM_BLOCKS - 6))
        references = bytes([2, 1, 1, 1] + [0] * (NUM_BLOCKS - 4))
        requests = (
            TracedRequest("request-a", "default", "running", 30, 30, 0, ((0, 1),)),
            TracedRequest("request-b", "priority", "running", 40, 20, 1, ((0, 2, 3),)),
            TracedRequest("request-c", "flex", "waiting", 10, 0, 0, ((),)),
        )
        shares = (TracedShare("request-a", 0, 1), TracedShare("request-b", 16, 0))
        steps = (TracedStep(7, 100.0, 0.02, shares, ("request-c",), 1, 0, 0),)
        return EngineTrace(16, states, references, bytes(8), requests, steps)

    def inspect_block(self, block: int) -> TracedBlock:
        if block >= NUM_BLOCKS:
            raise IndexError(block)
        return TracedBlock("ab" * 32 if block in (4, 5) else None, self.trace().references[block], 3)

    def stats(self) -> EngineStats:
        return _stats({"priority": 1, "default": 1, "flex": 0}, {"priority": 0, "default": 0, "flex": 1})


def _stats(num_running: dict[Priority, int], num_waiting: dict[Priority, int]) -> EngineStats:
    occupancy = Occupancy(
        blocks=BlockCounts(58, 2, 4, 0),
        swap_blocks=BlockCounts(8, 0, 0, 0),
        num_slots_allocated=64,
        num_slots_filled=48,
        num_running=num_running,
        num_waiting=num_waiting,
    )
    none = Histogram((1.0,), (0, 0), 0.0)
    return EngineStats(occupancy, 8, StepTimes(), 100, 25, 50, 120.0, 41.5, PreemptionCounts(1, 2), none, none)
