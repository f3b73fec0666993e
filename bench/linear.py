"""Speed of low-bit linear layers against oneDNN's: one JSON line per layer and number of rows.

    python -m bench.linear [--rows 1 8 32 64 256]

Layers are those of SmolLM2-135M in the bits of its Q4_1 file. Each measurement goes round copies of the weight that no
cache holds together, as a decode step does. oneDNN multiplies in bfloat16 where the CPU does, else in float32.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from kernels import Bits, PackedWeight, quantize, quantized_linear

WORKING_SET_BYTES = 64 << 20
ROUNDS = 7


class Layer(NamedTuple):
    """One linear layer [num_outputs, num_inputs]."""

    name: str
    num_outputs: int
    num_inputs: int
    bits: Bits


LAYERS = (
    Layer("qkv", 960, 576, 4),
    Layer("attention output", 576, 576, 4),
    Layer("gate and up", 3072, 576, 4),
    Layer("down", 576, 1536, 4),
    Layer("vocabulary", 49152, 576, 8),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 64, 256])
    for num_rows in parser.parse_args().rows:
        for layer in LAYERS:
            print(json.dumps(compare(layer, num_rows)), flush=True)


def compare(layer: Layer, num_rows: int) -> dict[str, object]:
    """Seconds and GFLOP/s of both on the same shape."""
    weight = torch.randn(layer.num_outputs, layer.num_inputs) * 0.05
    x = torch.randn(num_rows, layer.num_inputs).bfloat16()
    num_copies = max(1, WORKING_SET_BYTES * 8 // (weight.numel() * layer.bits))
    packed = [PackedWeight.pack(quantize(weight, layer.bits)) for _ in range(num_copies)]
    dense = torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32
    reordered = [torch.ops.mkldnn._reorder_linear_weight(weight.to(dense), 32) for _ in range(num_copies // 4 + 1)]
    dense_x = x.to(dense)
    ours_s = fastest(lambda one: quantized_linear(x, one), packed)
    theirs_s = fastest(lambda one: torch.ops.mkldnn._linear_pointwise(dense_x, one, None, "none", [], ""), reordered)
    gflop = 2e-9 * num_rows * weight.numel()
    return {
        "layer": layer.name,
        "bits": layer.bits,
        "rows": num_rows,
        "us": round(ours_s * 1e6, 1),
        "gflop_per_s": round(gflop / ours_s, 1),
        "dense_dtype": str(dense).removeprefix("torch."),
        "dense_us": round(theirs_s * 1e6, 1),
        "dense_gflop_per_s": round(gflop / theirs_s, 1),
        "speedup": round(theirs_s / ours_s, 2),
    }


def fastest(multiply: Callable[[Any], object], weights: Sequence[Any]) -> float:
    """Seconds of one product in the best of several rounds over all weights."""
    best_s = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for weight in weights:
            multiply(weight)
        best_s = min(best_s, (time.perf_counter() - start) / len(weights))
    return best_s


if __name__ == "__main__":
    main()
