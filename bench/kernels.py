"""Time of decode attention against the speed of memory: one JSON line per batch size and context length.

    python -m bench.kernels [--device cpu] [--backend best] [--output figures.jsonl]

Runs on the GPU where there is one. Heads and layers are those of SmolLM2-135M. A measurement runs through all layers of
several batches, more memory than any cache of the processor holds. Copy bandwidth counts bytes read plus bytes written;
attention only reads.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from kernels import AttentionBatch, CacheLayout, KVCache, paged_attention, reference
from kernels.backends import backend_for
from kernels.contract import Backend

NUM_HEADS = 9
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float16": torch.float16}
WORKING_SET_BYTES = 256 << 20
ROUNDS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    parser.add_argument("--backend", choices=("best", "reference"), default="best")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 512, 1024, 2048, 4096])
    parser.add_argument("--output", type=Path, help="a file that gets the lines too")
    arguments = parser.parse_args()
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text("")
    backend = reference if arguments.backend == "reference" else None
    layout = CacheLayout(30, 3, 64, 16, DTYPES[arguments.dtype])
    for num_rows in arguments.rows:
        for context_len in arguments.contexts:
            copy_bytes_per_s = measure_copy(arguments.device)
            decode = measure_decode(layout, num_rows, context_len, arguments.device, backend)
            line = {
                "device": describe(arguments.device),
                "backend": (backend or backend_for(torch.device(arguments.device).type, layout)).name,
                "dtype": arguments.dtype,
                "rows": num_rows,
                "context": context_len,
                "layer_us": round(decode.layer_s * 1e6, 1),
                "gb_per_s": round(decode.bytes_per_s / 1e9, 2),
                "copy_gb_per_s": round(copy_bytes_per_s / 1e9, 2),
                "share_of_copy": round(decode.bytes_per_s / copy_bytes_per_s, 3),
            }
            write(json.dumps(line), arguments.output)


def describe(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else device


def write(line: str, output: Path | None) -> None:
    """At once, so that a run that is cut short leaves what it has measured."""
    print(line, flush=True)
    if output:
        with output.open("a") as file:
            file.write(line + "\n")


class Decode(NamedTuple):
    """One layer's attention: its time and how fast it read keys and values."""

    layer_s: float
    bytes_per_s: float


def measure_decode(
    layout: CacheLayout, num_rows: int, context_len: int, device: str, backend: Backend | None
) -> Decode:
    """Median time of one layer's attention when each row computes one token."""
    blocks_per_row = math.ceil(context_len / layout.block_size)
    step_bytes = num_rows * context_len * layout.block_bytes // layout.block_size
    num_batches = max(1, math.ceil(WORKING_SET_BYTES / step_bytes))
    cache = KVCache.allocate(layout, num_batches * num_rows * blocks_per_row, device, backend=backend)
    cache.storage.zero_()
    block_ids = torch.randperm(cache.num_blocks, dtype=torch.int32, device=device)
    batches = [decode_batch(ids.view(num_rows, -1), context_len) for ids in block_ids.chunk(num_batches)]
    query = torch.randn(num_rows, NUM_HEADS, layout.head_dim, device=device).to(layout.dtype)

    def sweep() -> None:
        for batch in batches:
            for layer in range(layout.num_layers):
                paged_attention(query, cache, layer, batch, scale=layout.head_dim**-0.5)

    layer_s = measure(sweep, device) / (num_batches * layout.num_layers)
    return Decode(layer_s, step_bytes / layout.num_layers / layer_s)


def decode_batch(block_tables: torch.Tensor, context_len: int) -> AttentionBatch:
    num_rows, device = block_tables.shape[0], block_tables.device
    return AttentionBatch(
        query_starts=torch.arange(num_rows + 1, dtype=torch.int32, device=device),
        context_lens=torch.full((num_rows,), context_len, dtype=torch.int32, device=device),
        block_tables=block_tables.contiguous(),
        slot_mapping=torch.zeros(num_rows, dtype=torch.int64, device=device),
        max_query_len=1,
        max_context_len=context_len,
    )


def measure_copy(device: str) -> float:
    """Bytes per second, read and written, of a large copy."""
    source = torch.ones(WORKING_SET_BYTES, dtype=torch.uint8, device=device)
    target = torch.zeros_like(source)
    return 2 * WORKING_SET_BYTES / measure(lambda: target.copy_(source), device)


def measure(action: Callable[[], object], device: str) -> float:
    """Median seconds of several runs, after one that warms up."""
    durations = []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        action()
        if device != "cpu":
            torch.cuda.synchronize()
        durations.append(time.perf_counter() - start)
    return statistics.median(durations[1:])


if __name__ == "__main__":
    main()
