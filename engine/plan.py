"""What one step will do, and what came of it: plain data between the scheduler and the model thread."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.api import SamplingParams, TokenLogprob


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


@dataclass(frozen=True, slots=True)
class Draw:
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
    banned_token_ids: Seq[int] = ()
    num_candidates: int = 0


@dataclass(frozen=True, slots=True)
class Drawn:
    """Result of one draw.

    Attributes:
        token: the drawn token with its log-probability (the latter 0.0 where nobody asked for it).
        top: the likeliest tokens, best first: ``params.logprobs`` many, or ``num_candidates`` of a beam.
        failed: the row held NaN or +inf; token and top mean nothing.
    """

    token: TokenLogprob
    top: tuple[TokenLogprob, ...] = ()
    failed: bool = False


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """One sequence's share of a step: compute ``token_ids`` at positions ``start`` and on, then draw.

    Attributes:
        draws: tokens to draw from the logits of the row's last token; several where a prompt has just been computed
            and its sequences fork; none in the middle of a prompt.
        prompt_logprobs: return log-probabilities of the row's own next tokens; None: don't.
    """

    request_id: str
    start: int
    token_ids: Seq[int]
    block_table: array[int]
    draws: tuple[Draw, ...] = ()
    prompt_logprobs: int | None = None
