"""A request as the scheduler sees it, and its sequences.

There is no prefill or decode state. A sequence has tokens known (prompt and output) and tokens computed (their K and V
are in its blocks); a step brings the second number closer to the first, and draws a token when they meet.

    token_ids    |<------- prompt ------->|<---- output ---->|
    computed     |<---- num_computed_tokens ---->|           the rest is computed next; the last drawn token always is
    block_table  | block | block | block | block |           covers at least the computed tokens
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Seq
from enum import Enum
from typing import NamedTuple

from engine.api import FinishReason, Output, PositionLogprobs, Priority, SamplingParams, Usage
from engine.beam import BeamSearch
from engine.detokenizer import Detokenizer
from engine.prefix_cache import BlockKey, child_key, root_key

EMPTY_ROOT = root_key("", b"")


class TokenFacts(NamedTuple):
    """What of the model's tokenizer a request needs: the bytes of each token, and which tokens end a sequence."""

    vocabulary: Seq[bytes]
    eos_ids: frozenset[int]


class Status(Enum):
    WAITING = "waiting"  # holds no device block; swapped out if its sequences have swap tables
    RUNNING = "running"
    FINISHED = "finished"


class Sequence:
    """One sampled continuation of a request.

    Attributes:
        block_table: device block of each logical block.
        swap_table: CPU-pool block of each logical block while swapped out, else empty.
        block_keys: prefix-cache keys of the full blocks so far, computed lazily.
        cumulative_logprob: sum over the output, where somebody needs it.
        held_outputs: not told yet, because only the best of several sequences are returned.
    """

    __slots__ = (
        "block_keys",
        "block_table",
        "cumulative_logprob",
        "detokenizer",
        "finish_reason",
        "held_outputs",
        "index",
        "num_computed_tokens",
        "output_token_ids",
        "prompt_token_ids",
        "stop_reason",
        "swap_table",
    )

    def __init__(self, index: int, prompt_token_ids: list[int], detokenizer: Detokenizer) -> None:
        self.index = index
        self.prompt_token_ids = prompt_token_ids
        self.output_token_ids: list[int] = []
        self.num_computed_tokens = 0
        self.block_table: array[int] = array("i")
        self.swap_table: array[int] = array("i")
        self.block_keys: list[BlockKey] = []
        self.detokenizer = detokenizer
        self.finish_reason: FinishReason | None = None
        self.stop_reason: str | int | None = None
        self.cumulative_logprob = 0.0
        self.held_outputs: list[Output] = []

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    def token_ids(self, start: int, stop: int) -> list[int]:
        """Known tokens ``start`` to ``stop``, across prompt and output."""
        num_prompt = len(self.prompt_token_ids)
        if start >= num_prompt:
            return self.output_token_ids[start - num_prompt : stop - num_prompt]
        if stop <= num_prompt:
            return self.prompt_token_ids[start:stop]
        return self.prompt_token_ids[start:] + self.output_token_ids[: stop - num_prompt]


class Request:
    """A prompt with its sampling parameters, on its way through the scheduler.

    Attributes:
        root: prefix-cache root of the caller's salt.
        arrival: number in order of arrival; with the class it is the request's rank.
        level: effective class, 0 highest; waiting lowers it, one class per ``ageing_s``.
        sequences: the running ones. Until the prompt is computed the first stands for all: they fork from it.
        stop_token_ids: end a sequence: end-of-sequence unless ignored, and the caller's own.
        is_expanded: all sequences exist; before the first fork only one does.
        is_forked: the sequences have block tables of their own. Recomputation goes back to one table for the prompt.
        waited_s, waiting_since: time spent waiting so far, and since when it waits now.
    """

    def __init__(
        self,
        request_id: str,
        prompt_token_ids: list[int],
        params: SamplingParams,
        tokens: TokenFacts,
        *,
        max_tokens: int,
        priority: Priority = "default",
        root: BlockKey = EMPTY_ROOT,
    ) -> None:
        assert params.seed is not None, "a seed is chosen before a request is made"
        self.request_id = request_id
        self.prompt_token_ids = prompt_token_ids
        self.params = params
        self.seed = params.seed
        self.priority = priority
        self.root = root
        self.max_tokens = max_tokens
        eos_ids = frozenset() if params.ignore_eos else tokens.eos_ids
        self.stop_token_ids = eos_ids.union(params.stop_token_ids)
        self.arrival = 0
        self.level = 0
        self.status = Status.WAITING
        self.was_admitted = False
        self.waited_s = 0.0
        self.waiting_since = 0.0
        self.arrived_at = 0.0
        self.last_token_at: float | None = None
        self._vocabulary = tokens.vocabulary
        self.sequences = [self.new_sequence(0)]
        self.finished_sequences: list[Sequence] = []
        self.is_expanded = params.num_sequences == 1
        self.is_forked = False
        self.beam: BeamSearch | None = None
        if params.use_beam_search:
            self.beam = BeamSearch(
                params, max_tokens=max_tokens, eos_token_ids=eos_ids, detokenizer=self.new_detokenizer()
            )
        self.prompt_logprobs: list[PositionLogprobs | None] = []
        self.num_output_tokens = 0
        self.num_cached_tokens = 0
        self.num_preemptions = 0

    def new_detokenizer(self) -> Detokenizer:
        return Detokenizer(self._vocabulary, self.params.stop)

    def new_sequence(self, index: int) -> Sequence:
        return Sequence(index, self.prompt_token_ids, self.new_detokenizer())

    def expand(self) -> None:
        """Make the other sequences; they have computed nothing yet."""
        self.sequences += [self.new_sequence(index) for index in range(1, self.params.num_sequences)]
        self.is_expanded = True

    @property
    def rank(self) -> tuple[int, bool, int]:
        """Sort key: class, then those that ran before (preempted ones) ahead of new ones, then arrival."""
        return (self.level, not self.was_admitted, self.arrival)

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def is_swapped_out(self) -> bool:
        return any(sequence.swap_table for sequence in self.sequences)

    @property
    def num_sequences(self) -> int:
        """Unfinished sequences, now or once the prompt is computed; they count against ``max_num_seqs``."""
        return len(self.sequences) if self.is_expanded else self.params.num_sequences

    @property
    def is_sharing_prompt(self) -> bool:
        """One sequence is computing the prompt for several."""
        return not self.is_forked and self.num_sequences > 1

    def computing_sequences(self) -> list[Sequence]:
        """Those that a step advances: all, or the one that computes the prompt for all."""
        return self.sequences if self.is_forked else self.sequences[:1]

    def num_computable_tokens(self, sequence: Sequence) -> int:
        """Tokens that the sequence may compute now: all known, or the prompt while others wait to fork from it."""
        return self.num_prompt_tokens if self.is_sharing_prompt else sequence.num_tokens

    def block_keys(self, sequence: Sequence, block_size: int, num_blocks: int) -> list[BlockKey]:
        """Prefix-cache keys of the first ``num_blocks`` full blocks of a sequence."""
        keys = sequence.block_keys
        for index in range(len(keys), num_blocks):
            start = index * block_size
            keys.append(child_key(self.parent_key(keys, index), sequence.token_ids(start, start + block_size)))
        return keys[:num_blocks]

    def parent_key(self, keys: list[BlockKey], index: int) -> BlockKey:
        """What block ``index`` continues."""
        return keys[index - 1] if index else self.root

    def usage(self) -> Usage:
        return Usage(self.num_prompt_tokens, self.num_output_tokens, self.num_cached_tokens)
