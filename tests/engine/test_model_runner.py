"""Plans against a model whose logits say which token it has just read, and from which block."""

from __future__ import annotations

from array import array

import torch

from engine.api import SamplingParams
from engine.model_runner import ModelRunner
from engine.plan import BlockMove, BlockTransfers, Draw, Plan, PlannedRow
from kernels import AttentionBatch, CacheLayout, KVCache, write_kv

VOCAB_SIZE = 50
GREEDY = SamplingParams(temperature=0, seed=0)


class Echo:
    """Stores each token as its key and value; its likeliest next token is the one that stands first in the block."""

    def layout(self, block_size: int) -> CacheLayout:
        return CacheLayout(num_layers=1, num_kv_heads=1, head_dim=32, block_size=block_size, dtype=torch.float32)

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, batch: AttentionBatch, cache: KVCache
    ) -> torch.Tensor:
        states = token_ids.float().view(-1, 1, 1).expand(-1, 1, 32).contiguous()
        write_kv(cache, 0, states, states, batch)
        first = cache.keys(0)[batch.block_tables[:, 0].long(), 0, 0].reshape(len(batch.context_lens), -1)[:, 0]
        lengths = batch.query_starts.diff().long()
        return torch.stack((first.repeat_interleave(lengths), token_ids.float()), dim=1)

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(hidden[:, 0].long(), VOCAB_SIZE).float() * 10


def make() -> ModelRunner:
    return ModelRunner(Echo(), Echo().layout(8), num_blocks=4, num_swap_blocks=2, device=torch.device("cpu"))


def draw(index: int = 0, params: SamplingParams = GREEDY) -> Draw:
    return Draw(params, 0, index, 1, [1], [])


def row(start: int, token_ids: list[int], table: list[int], *draws: Draw) -> PlannedRow:
    return PlannedRow(start, token_ids, array("i", table), draws)


def test_draws_come_back_to_the_rows_that_asked() -> None:
    result = make().run(
        Plan(BlockTransfers(), [row(0, [7, 8], [0]), row(0, [9], [1], draw(0), draw(1)), row(0, [11, 12], [2], draw())])
    )
    assert [[one.token.token_id for one in drawn] for drawn in result.drawn] == [[], [9, 9], [11]]


def test_moves_run_before_the_forward_pass_and_in_order() -> None:
    runner = make()
    runner.run(Plan(BlockTransfers(), [row(0, [21], [0]), row(0, [22], [1])]))
    # Out of block 0, which is then overwritten from block 1; what went out comes in again as block 2.
    moves = BlockTransfers(swap_outs=[BlockMove(0, 1)], swap_ins=[BlockMove(1, 2)], copies=[BlockMove(1, 0)])
    result = runner.run(Plan(moves, [row(1, [3], [2], draw()), row(1, [3], [0], draw())]))
    assert [drawn[0].token.token_id for drawn in result.drawn] == [21, 22]


def test_a_step_of_moves_alone_computes_nothing() -> None:
    result = make().run(Plan(BlockTransfers(swap_outs=[BlockMove(0, 0)]), []))
    assert (result.drawn, result.model_s) == ([], 0.0)


def test_prompt_log_probabilities_line_up_with_the_next_tokens() -> None:
    asked = PlannedRow(0, [5, 6, 5], array("i", [0]), (), prompt_logprobs=1, next_prompt_token_id=9)
    result = make().run(Plan(BlockTransfers(), [row(0, [1], [1]), asked]))
    told = result.prompt_logprobs[1]
    assert [position.chosen.token_id for position in told] == [6, 5, 9]
    assert [position.top[0].token_id for position in told] == [5, 5, 5]
    assert told[1].chosen == told[1].top[0]
