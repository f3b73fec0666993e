"""One step between the scheduler's two verbs: the plan for the model thread, and whose rows they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from engine.api import Notice
from engine.plan import BlockTransfers, Draw, Plan, PlannedRow
from engine.request import Request, Sequence


class Share(NamedTuple):
    """One request's part of a step: rows ``first_row`` and on, one per sequence."""

    request: Request
    sequences: list[Sequence]
    first_row: int


@dataclass(slots=True)
class Step:
    """A plan in the making, then on its way.

    Attributes:
        max_prefill_tokens: tokens that prompts may have in all.
        held_back: shares of long prompts that will grow if nobody else wants the budget.
        notices: what happened to requests in making the plan, to be told at once.
    """

    max_prefill_tokens: int
    plan: Plan = field(default_factory=lambda: Plan(BlockTransfers(), []))
    shares: list[Share] = field(default_factory=list)
    notices: list[tuple[Request, Notice]] = field(default_factory=list)
    num_prefill_tokens: int = 0
    num_decode_tokens: int = 0
    held_back: list[Share] = field(default_factory=list)

    @property
    def prefill_budget(self) -> int:
        """Tokens that may still be given to prompts."""
        return self.max_prefill_tokens - self.num_prefill_tokens

    def count_tokens(self, num_tokens: int, is_decode: bool) -> None:
        if is_decode:
            self.num_decode_tokens += num_tokens
        else:
            self.num_prefill_tokens += num_tokens


def is_decoding(request: Request) -> bool:
    """Every sequence has exactly its last drawn token to compute."""
    if request.is_sharing_prompt:
        return False
    # A plain loop: this runs twice for each request and step.
    for sequence in request.computing_sequences():
        if not sequence.output_token_ids or sequence.num_tokens - sequence.num_computed_tokens != 1:
            return False
    return True


def num_tokens_left(request: Request) -> int:
    """Tokens known and not yet computed, of all sequences that compute."""
    return sum(request.num_computable_tokens(s) - s.num_computed_tokens for s in request.computing_sequences())


def share_of_budget(request: Request, budget: int, block_size: int) -> dict[int, int]:
    """Tokens to compute by sequence index. A chunk ends at a block's end, so that the block can be shared early."""
    share: dict[int, int] = {}
    # Beams draw together or not at all, so none may compute its last token before all can.
    num_kept_back = int(request.params.use_beam_search and num_tokens_left(request) > budget)
    for sequence in request.computing_sequences():
        num_left = request.num_computable_tokens(sequence) - sequence.num_computed_tokens - num_kept_back
        num_new = min(num_left, budget)
        if num_new < num_left:
            num_beyond_block = (sequence.num_computed_tokens + num_new) % block_size
            num_new -= num_beyond_block if num_beyond_block < num_new else 0
        if num_new > 0:
            share[sequence.index] = num_new
            budget -= num_new
    return share


def plan_row(request: Request, sequence: Sequence, num_new: int) -> PlannedRow:
    start = sequence.num_computed_tokens
    end = start + num_new
    wants_logprobs = request.params.prompt_logprobs if not sequence.output_token_ids else None
    next_token_id = None
    if wants_logprobs is not None and end < request.num_prompt_tokens:
        next_token_id = request.prompt_token_ids[end]
    return PlannedRow(
        start, sequence.token_ids(start, end), sequence.block_table, _draws(request, sequence, end),
        wants_logprobs, next_token_id,
    )  # fmt: skip


def _draws(request: Request, sequence: Sequence, end: int) -> tuple[Draw, ...]:
    """Tokens are drawn where all that is known has been computed; at the end of a first prompt, for all sequences."""
    if end < sequence.num_tokens:
        return ()
    if request.beam is not None:
        return (_draw(request, sequence, sequence.index, request.beam.num_candidates),)
    if request.is_expanded:
        return (_draw(request, sequence, sequence.index, 0),)
    return tuple(_draw(request, sequence, index, 0) for index in range(request.num_sequences))


def _draw(request: Request, sequence: Sequence, index: int, num_candidates: int) -> Draw:
    output = sequence.output_token_ids
    banned = request.stop_token_ids if len(output) < request.params.min_tokens else ()
    return Draw(
        request.params,
        request.seed,
        index,
        sequence.num_tokens,
        request.prompt_token_ids,
        output,
        banned,
        num_candidates,
    )
