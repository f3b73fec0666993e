"""What crosses the engine's door: sampling parameters in, outputs out. No torch, no asyncio."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from engine.errors import InvalidRequest

Priority = Literal["priority", "default", "flex"]
"""Scheduling class. ``priority`` goes before ``default`` goes before ``flex``."""

PRIORITIES: tuple[Priority, ...] = ("priority", "default", "flex")

FinishReason = Literal["stop", "length"]
"""``stop``: an end-of-sequence token, stop token or stop string. ``length``: a token limit."""

Notice = Literal["started", "preempted", "resumed"]
"""What happened to a request as a whole, told in its stream of outputs."""

MIN_TEMPERATURE = 1e-5
"""Below this the softmax is one-hot in float32, and sampling is exactly greedy."""

MAX_TEMPERATURE = 2.0
"""As the OpenAI API has it; above, answers are noise."""

MAX_LOGPROBS = 20
MAX_NUM_SEQUENCES = 64
MAX_STOP_STRINGS = 16
MAX_STOP_CHARS = 1024
MAX_LOGIT_BIAS = 100


def _require(condition: bool, name: str, message: str) -> None:
    if not condition:
        raise InvalidRequest(name, f"{name} {message}")


def has_surrogate(text: str) -> bool:
    """Whether the text holds a lone surrogate: JSON can spell one, but neither a tokenizer nor UTF-8 can encode it."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How to continue a prompt. Checked on creation; what needs the model's size is checked at admission.

    Attributes:
        max_tokens: tokens to generate at most; None means as many as fit.
        min_tokens: end-of-sequence and stop tokens cannot be drawn, nor stop strings end the text, before this many.
        temperature: up to ``MAX_TEMPERATURE``; 0 (or anything below ``MIN_TEMPERATURE``) is greedy.
        top_k: keep the k likeliest tokens; 0 keeps all.
        top_p: keep the smallest set of likeliest tokens whose probability reaches this.
        min_p: drop tokens less likely than this share of the likeliest one.
        n: sequences to return.
        best_of: sequences to generate, of which the ``n`` of highest mean log-probability are returned.
        use_beam_search: deterministic beam search of width ``best_of or n``.
        length_penalty: exponent of the length in a beam's score.
        early_stopping: True, False or "never", as Hugging Face defines them.
        seed: draws depend on (seed, sequence index, position) only; None takes a fresh one.
        stop: strings that end the text; the text is cut before the first one.
        stop_token_ids: tokens that end the text, like end-of-sequence.
        ignore_eos: end-of-sequence tokens do not end the text.
        repetition_penalty: >1 discourages tokens of prompt and output (CTRL, Keskar et al. 2019).
        presence_penalty: subtracted once from the logit of each token already generated.
        frequency_penalty: subtracted per earlier occurrence of each token already generated.
        logit_bias: added to the logits of these token ids.
        logprobs: also return this many likeliest tokens per position (0: the drawn one only); None: nothing.
        prompt_logprobs: the same for the prompt's positions; the prompt is then computed without the prefix cache.

    Raises:
        InvalidRequest: names the field and its limit.
    """

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    n: int = 1
    best_of: int | None = None
    use_beam_search: bool = False
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int | None = None
    prompt_logprobs: int | None = None

    def __post_init__(self) -> None:
        self._check_integers()
        self._check_numbers()
        self._check_stops()
        self._check_combinations()

    def _check_integers(self) -> None:
        for name, low, high in (
            ("max_tokens", 1, None),
            ("min_tokens", 0, None),
            ("top_k", 0, None),
            ("n", 1, MAX_NUM_SEQUENCES),
            ("best_of", 1, MAX_NUM_SEQUENCES),
            ("seed", -(2**63), 2**64 - 1),
            ("logprobs", 0, MAX_LOGPROBS),
            ("prompt_logprobs", 0, MAX_LOGPROBS),
        ):
            value = getattr(self, name)
            if value is None and self._default_is_none(name):
                continue
            limit = f"at least {low}" if high is None else f"from {low} to {high}"
            _require(_is_int(value), name, f"must be an integer, {limit}, not {value!r}")
            _require(value >= low and (high is None or value <= high), name, f"must be {limit}, not {value}")

    def _check_numbers(self) -> None:
        for name, low, high in (
            ("temperature", 0.0, MAX_TEMPERATURE),
            ("top_p", 0.0, 1.0),
            ("min_p", 0.0, 1.0),
            ("length_penalty", -1e3, 1e3),
            ("repetition_penalty", 1e-3, 1e3),  # logits are divided by it
            ("presence_penalty", -100.0, 100.0),
            ("frequency_penalty", -100.0, 100.0),
        ):
            value = getattr(self, name)
            _require(_is_number(value), name, f"must be a finite number, not {value!r}")
            _require(low <= value <= high, name, f"must be from {low:g} to {high:g}, not {value}")
        _require(self.top_p > 0, "top_p", "must be above 0")
        for token_id, bias in self.logit_bias.items():
            _require(_is_int(token_id), "logit_bias", f"has a key that is not a token id: {token_id!r}")
            allowed = _is_number(bias) and abs(bias) <= MAX_LOGIT_BIAS
            _require(allowed, "logit_bias", f"of token {token_id} must be from -{MAX_LOGIT_BIAS} to {MAX_LOGIT_BIAS}")

    def _check_stops(self) -> None:
        _require(isinstance(self.stop, tuple), "stop", "must be a tuple of strings")
        _require(len(self.stop) <= MAX_STOP_STRINGS, "stop", f"may hold at most {MAX_STOP_STRINGS} strings")
        for text in self.stop:
            _require(isinstance(text, str) and text != "", "stop", "must hold non-empty strings")
            _require(len(text) <= MAX_STOP_CHARS, "stop", f"strings may have at most {MAX_STOP_CHARS} characters")
            _require(not has_surrogate(text), "stop", "holds a lone surrogate, which is no text")
        for token_id in self.stop_token_ids:
            _require(_is_int(token_id), "stop_token_ids", f"must hold token ids, not {token_id!r}")

    def _check_combinations(self) -> None:
        _require(self.early_stopping in (True, False, "never"), "early_stopping", 'must be true, false or "never"')
        _require(self.num_sequences >= self.n, "best_of", f"must be at least n, which is {self.n}")
        if self.max_tokens is not None:
            _require(self.min_tokens <= self.max_tokens, "min_tokens", f"must not exceed max_tokens, {self.max_tokens}")
        if self.use_beam_search:
            _require(self.logprobs is None, "logprobs", "cannot be combined with use_beam_search")

    @classmethod
    def _default_is_none(cls, name: str) -> bool:
        return any(f.name == name and f.default is None for f in fields(cls))

    @property
    def num_sequences(self) -> int:
        """Sequences that run at once: beams, or candidates for best_of."""
        return self.n if self.best_of is None else self.best_of

    @property
    def is_ranked(self) -> bool:
        """Only the best of several sequences are returned, so nothing can be told before all have ended."""
        return self.use_beam_search or self.num_sequences > self.n

    @property
    def needs_logprob(self) -> bool:
        """The drawn tokens' log-probabilities are wanted, by the caller or for ranking."""
        return self.logprobs is not None or self.is_ranked

    @property
    def is_greedy(self) -> bool:
        return self.temperature < MIN_TEMPERATURE

    def check_token_ids(self, model: ModelInfo) -> None:
        """Refuse ids that the model does not have, which would index outside a row of logits, or all that it has."""
        for name, token_ids in (("logit_bias", self.logit_bias), ("stop_token_ids", self.stop_token_ids)):
            for token_id in token_ids:
                message = f"has token id {token_id}; ids go from 0 to {model.vocab_size - 1}"
                _require(0 <= token_id < model.vocab_size, name, message)
        num_banned = len(model.eos_token_ids.union(self.stop_token_ids)) if self.min_tokens else 0
        message = f"leave no token to draw before min_tokens, {self.min_tokens}, are reached"
        _require(num_banned < model.vocab_size, "stop_token_ids", message)


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token and its natural-log probability under the model, before penalties and temperature. Always finite."""

    token_id: int
    logprob: float


@dataclass(frozen=True, slots=True)
class PositionLogprobs:
    """The token at one position and the likeliest ones there, best first."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a request so far. ``cached_tokens`` of the prompt were not computed but reused."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Output:
    """What is new in one sequence since the last output, or a notice about the whole request.

    Token ids are told as they are drawn. Text may lag behind them, for half a character or the beginning of a
    possible stop string is held back; the concatenated texts are the decoded text, cut before a stop string.

    Attributes:
        index: which of the request's ``n`` sequences.
        finish_reason: set in the last output of a sequence.
        stop_reason: the stop string or token id that ended it, where one did.
        score: of a finished beam: its length-penalised log-probability.
        prompt_logprobs: in the first output, where asked for; None stands for the first token.
    """

    index: int
    token_ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason | None
    usage: Usage
    stop_reason: str | int | None = None
    logprobs: tuple[PositionLogprobs, ...] = ()
    prompt_logprobs: tuple[PositionLogprobs | None, ...] | None = None
    score: float | None = None
    notice: Notice | None = None


def merge_outputs(outputs: Sequence[Output]) -> Output:
    """One output that says what all of them say; they are of one sequence, in order, and at least one."""
    if len(outputs) == 1:
        return outputs[0]
    return replace(
        outputs[-1],
        token_ids=tuple(token_id for output in outputs for token_id in output.token_ids),
        text="".join(output.text for output in outputs),
        logprobs=tuple(one for output in outputs for one in output.logprobs),
        prompt_logprobs=next((o.prompt_logprobs for o in outputs if o.prompt_logprobs is not None), None),
    )


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message of a conversation, as a chat template sees it.

    Attributes:
        token_ids: of an assistant message that the model itself generated: exactly the ids it drew, without the
            end-of-sequence token. They are spliced into the prompt, so that their blocks are found in the prefix cache.
    """

    role: str
    content: str
    token_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class CachedPrefix:
    """How much of a run of tokens lies in this engine's prefix cache, in full blocks.

    Attributes:
        key: prefix-cache key of the last block found, in hexadecimal; None if there is none.
        num_device_tokens: reusable at once.
        num_cpu_tokens: continue them, from the CPU pool.
    """

    key: str | None
    num_device_tokens: int
    num_cpu_tokens: int


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What callers may know of the loaded model.

    Attributes:
        fingerprint: changes with the weights; part of every prefix-cache key.
        max_model_len: tokens of prompt and answer together.
        sampling: fields of ``SamplingParams`` as the model's makers recommend them; empty where they do not.
    """

    name: str
    architecture: str
    fingerprint: str
    vocab_size: int
    max_model_len: int
    eos_token_ids: frozenset[int]
    sampling: Mapping[str, float] = field(default_factory=dict, hash=False)
