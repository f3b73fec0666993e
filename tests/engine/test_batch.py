"""Rows of different shapes become one ragged batch."""

from __future__ import annotations

from array import array

import torch

from engine.batch import build_input
from engine.plan import PlannedRow


def test_a_chunk_and_a_decode_in_one_batch() -> None:
    rows = [PlannedRow(6, [11, 12, 13], array("i", [5, 2]), ()), PlannedRow(16, [21], array("i", [7, 1, 4]), ())]
    inputs = build_input(rows, 8, torch.device("cpu"))
    assert inputs.token_ids.tolist() == [11, 12, 13, 21]
    assert inputs.positions.tolist() == [6, 7, 8, 16]
    assert inputs.last_tokens.tolist() == [2, 3]
    attention = inputs.attention
    assert attention.query_starts.tolist() == [0, 3, 4]
    assert attention.context_lens.tolist() == [9, 17]
    assert attention.block_tables.tolist() == [[5, 2, 0], [7, 1, 4]]
    assert attention.slot_mapping.tolist() == [46, 47, 16, 32]
    assert (attention.max_query_len, attention.max_context_len) == (3, 17)
