"""What one step will do, and what came of it: plain data between the scheduler and the model thread."""

from __future__ import annotations

from array import array
from collections.abc import Collection
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.api import PositionLogprobs, SamplingParams, TokenLogprob


class BlockMove(NamedTuple):
    """Copy block ``source`` to block ``target``; which pools they are of depends on the list it stands in."""

    source: int
    target: int


@dataclass(slots=True)
class BlockTransfers:
    """Block moves of one step, run in this order before the forward pass."""

    swap_outs: list[BlockMove] = field(default_factory=list)  # device -> CPU pool
    swap_ins: list[BlockMove] = field(default_factory=list)  # CPU pool -> device
    copies: list[BlockMove] = field(default_factory=list)  # device -> device, copy-on-write

    def __bool__(self) -> bool:
        return bool(self.swap_outs or self.swap_ins or self.copies)

    @property
    def num_swapped(self) -> int:
        return len(self.swap_outs) + len(self.swap_ins)


class Draw(NamedTuple):
    """One token to draw from one row of logits.

    Attributes:
        seed: of the request; with ``sequence_index`` and ``position`` it fixes the random number.
        position: index of the drawn token in its sequence, prompt included.
        prompt_token_ids, output_token_ids: history, for penalties; read only.
        banned_token_ids: cannot be drawn here (end-of-sequence and stop tokens before ``min_tokens``).
        num_candidates: of a beam: return this many likeliest continuations instead of one token; 0 otherwise.
    """

    params: SamplingParams
    seed: int
    sequence_index: int
    position: int
    prompt_token_ids: Seq[int]
    output_token_ids: Seq[int]
    banned_token_ids: Collection[int] = ()
    num_candidates: int = 0


class Drawn(NamedTuple):
    """Result of one draw.

    Attributes:
        token: the drawn token with its log-probability (the latter 0.0 where nobody asked for it).
        top: the likeliest tokens, best first: ``params.logprobs`` many, or ``num_candidates`` of a beam.
        failed: the row held NaN or +inf; token and top mean nothing.
    """

    token: TokenLogprob
    top: tuple[TokenLogprob, ...] = ()
    failed: bool = False


def has_failed(drawn: Collection[Drawn]) -> bool:
    """Whether the row that these were drawn from held no usable logits."""
    return any(one.failed for one in drawn)


class PlannedRow(NamedTuple):
    """One sequence's share of a step: compute ``token_ids`` at positions ``start`` and on, then draw.

    Attributes:
        block_table: device block of each logical block, covering the new tokens too.
        draws: tokens to draw from the logits of the row's last token; several where a prompt has just been computed
            and its sequences fork; none in the middle of a prompt.
        prompt_logprobs: log-probabilities wanted for the row's own next tokens; None: none.
        next_prompt_token_id: the prompt token after the row's last one, where there is one and they are wanted.
    """

    start: int
    token_ids: Seq[int]
    block_table: array[int]
    draws: tuple[Draw, ...]
    prompt_logprobs: int | None = None
    next_prompt_token_id: int | None = None


@dataclass(slots=True)
class Plan:
    """Work of one step: block moves first, then one forward pass over the rows."""

    transfers: BlockTransfers
    rows: list[PlannedRow]

    @property
    def is_empty(self) -> bool:
        return not self.rows and not self.transfers


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a step produced.

    Attributes:
        drawn: per row, one for each of its draws.
        prompt_logprobs: per row that wants them (by row number), for each of its tokens that has a next prompt token.
        transfer_s, model_s, sample_s: seconds spent on block moves, on the forward pass and on sampling.
    """

    drawn: list[tuple[Drawn, ...]]
    prompt_logprobs: dict[int, list[PositionLogprobs]]
    transfer_s: float
    model_s: float
    sample_s: float
