"""Runs plans: block moves, one forward pass, draws. Lives in the model thread; knows no queue and no socket."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from torch import Tensor

from engine.api import PositionLogprobs
from engine.batch import ModelInput, build_input
from engine.errors import ConfigError
from engine.models import Model
from engine.plan import BlockMove, BlockTransfers, Drawn, Plan, PlannedRow, StepResult
from engine.sampler import Sampler, position_logprobs
from kernels import CacheLayout, KVCache, copy_blocks, swap_blocks

_LOGPROB_ROWS = 128
"""Rows of logits that are in memory at once when a prompt's log-probabilities are wanted."""


class ModelRunner:
    """One model with its KV cache and swap pool.

    Args:
        model: the decoder, its weights on ``device``.
        layout: of the cache and the pool.
        num_blocks: blocks of the cache on ``device``.
        num_swap_blocks: blocks of the pool in CPU memory.
        device: where the model runs.

    Raises:
        ConfigError: there is no memory for so many blocks.
    """

    def __init__(
        self, model: Model, layout: CacheLayout, num_blocks: int, num_swap_blocks: int, device: torch.device
    ) -> None:
        self._model = model
        self._block_size = layout.block_size
        self._device = device
        try:
            self._cache = KVCache.allocate(layout, num_blocks, device)
            self._swap_pool = KVCache.allocate(layout, num_swap_blocks, "cpu", pinned=device.type != "cpu")
        except RuntimeError as error:
            raise ConfigError(
                f"num_blocks ({num_blocks}) or num_swap_blocks ({num_swap_blocks}) must be lower: there is no memory "
                f"for so many blocks of {layout.block_bytes} bytes"
            ) from error
        self._sampler = Sampler()

    @torch.inference_mode()
    def run(self, plan: Plan) -> StepResult:
        """Do one step. Returns when its results are on the host."""
        started = time.perf_counter()
        self._move_blocks(plan.transfers)
        moved = time.perf_counter()
        if not plan.rows:
            return StepResult([], {}, moved - started, 0.0, 0.0)
        inputs = build_input(plan.rows, self._block_size, self._device)
        hidden = self._model.forward(inputs.token_ids, inputs.positions, inputs.attention, self._cache)
        logits, owners = self._logits_to_draw_from(plan.rows, hidden, inputs)
        computed = time.perf_counter()
        drawn = self._draw(plan.rows, logits, owners)
        prompt = self._prompt_logprobs(plan.rows, hidden)
        return StepResult(drawn, prompt, moved - started, computed - moved, time.perf_counter() - computed)

    def _move_blocks(self, transfers: BlockTransfers) -> None:
        """In the order that the block manager counts on."""
        for moves, source, target in (
            (transfers.swap_outs, self._cache, self._swap_pool),
            (transfers.swap_ins, self._swap_pool, self._cache),
        ):
            if moves:
                swap_blocks(source, target, *_columns(moves)).wait()
        if transfers.copies:
            copy_blocks(self._cache, *_columns(transfers.copies))

    def _logits_to_draw_from(
        self, rows: Sequence[PlannedRow], hidden: Tensor, inputs: ModelInput
    ) -> tuple[Tensor, list[int]]:
        """Logits [S, V], one row for each draw, and the plan's row each belongs to."""
        drawing = [number for number, row in enumerate(rows) if row.draws]
        last_tokens = inputs.last_tokens if len(drawing) == len(rows) else inputs.last_tokens[drawing]
        logits = self._model.compute_logits(hidden[last_tokens])
        if any(len(rows[number].draws) > 1 for number in drawing):
            counts = torch.tensor([len(rows[number].draws) for number in drawing], device=logits.device)
            logits = logits.repeat_interleave(counts, dim=0)
        return logits, [number for number in drawing for _ in rows[number].draws]

    def _draw(self, rows: Sequence[PlannedRow], logits: Tensor, owners: Sequence[int]) -> list[tuple[Drawn, ...]]:
        drawn: list[list[Drawn]] = [[] for _ in rows]
        if owners:
            draws = [draw for row in rows for draw in row.draws]
            for owner, one in zip(owners, self._sampler.sample(logits, draws), strict=True):
                drawn[owner].append(one)
        return [tuple(of_row) for of_row in drawn]

    def _prompt_logprobs(self, rows: Sequence[PlannedRow], hidden: Tensor) -> dict[int, list[PositionLogprobs]]:
        found: dict[int, list[PositionLogprobs]] = {}
        first = 0
        for number, row in enumerate(rows):
            if row.prompt_logprobs is not None:
                found[number] = self._row_logprobs(row, hidden[first : first + len(row.token_ids)])
            first += len(row.token_ids)
        return found

    def _row_logprobs(self, row: PlannedRow, hidden: Tensor) -> list[PositionLogprobs]:
        """Of the row's tokens from the second on, and of the prompt token that follows, if one does."""
        assert row.prompt_logprobs is not None
        targets = list(row.token_ids[1:])
        if row.next_prompt_token_id is not None:
            targets.append(row.next_prompt_token_id)
        found: list[PositionLogprobs] = []
        for start in range(0, len(targets), _LOGPROB_ROWS):
            wanted = targets[start : start + _LOGPROB_ROWS]
            logits = self._model.compute_logits(hidden[start : start + len(wanted)])
            found += position_logprobs(logits, wanted, row.prompt_logprobs)
        return found


def _columns(moves: Sequence[BlockMove]) -> tuple[list[int], list[int]]:
    return [move.source for move in moves], [move.target for move in moves]
