"""From a plan's rows to the tensors of one forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from engine.plan import PlannedRow
from kernels import AttentionBatch


@dataclass(frozen=True, slots=True)
class ModelInput:
    """One ragged batch of B rows and T tokens.

    Attributes:
        token_ids, positions: [T] int64.
        attention: where the tokens are read and written in the cache.
        last_tokens: [B] int64, index of each row's last token among the T.
    """

    token_ids: Tensor
    positions: Tensor
    attention: AttentionBatch
    last_tokens: Tensor


def build_input(rows: Sequence[PlannedRow], block_size: int, device: torch.device) -> ModelInput:
    """Assemble on the host with numpy, then move each array to the device once."""
    lengths = [len(row.token_ids) for row in rows]
    starts = np.fromiter(accumulate(lengths, initial=0), np.int32, len(rows) + 1)
    firsts = np.fromiter((row.start for row in rows), np.int32, len(rows))
    token_ids = np.fromiter((token for row in rows for token in row.token_ids), np.int64, int(starts[-1]))
    row_of_token = np.repeat(np.arange(len(rows)), lengths)
    positions = np.arange(len(token_ids), dtype=np.int64) + (firsts - starts[:-1])[row_of_token]
    tables = _block_tables(rows)
    slots = tables[row_of_token, positions // block_size].astype(np.int64) * block_size + positions % block_size
    context_lens = firsts + np.diff(starts)

    def to_device(values: np.ndarray) -> Tensor:
        return torch.from_numpy(values).to(device, non_blocking=True)

    attention = AttentionBatch(
        query_starts=to_device(starts),
        context_lens=to_device(context_lens),
        block_tables=to_device(tables),
        slot_mapping=to_device(slots),
        max_query_len=max(lengths),
        max_context_len=int(context_lens.max()),
    )
    last_tokens = to_device(starts[1:].astype(np.int64) - 1)
    return ModelInput(to_device(token_ids), to_device(positions), attention, last_tokens)


def _block_tables(rows: Sequence[PlannedRow]) -> np.ndarray:
    tables = np.zeros((len(rows), max(len(row.block_table) for row in rows)), np.int32)
    for table, row in zip(tables, rows, strict=True):
        table[: len(row.block_table)] = row.block_table
    return tables
