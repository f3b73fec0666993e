"""Offline generation throughput of the engine: N prompts of random tokens, greedy, fixed lengths, no prefix cache.

    python -m bench.throughput --n 1,8,32,64 --input 128 --output 128

Prints one JSON line per N, with the same prompts and keys as ``bench/peers/throughput.py``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from engine import Engine, EngineConfig, SamplingParams


@dataclass(frozen=True, slots=True)
class Load:
    """What to generate: ``num_output`` tokens after each of several prompts of ``num_input`` tokens."""

    counts: tuple[int, ...]
    num_input: int
    num_output: int


def random_prompts(num_prompts: int, num_tokens: int) -> list[list[int]]:
    """Prompts that share no prefix; ids from the middle of the vocabulary, clear of control tokens."""
    return [[random.randrange(1000, 40000) for _ in range(num_tokens)] for _ in range(num_prompts)]


async def generate(engine: Engine, prompt: Sequence[int], num_output: int) -> int:
    """Run one request to its end; return the number of tokens it gave."""
    params = SamplingParams(temperature=0, max_tokens=num_output, ignore_eos=True)
    num_tokens = 0
    async for output in engine.generate(prompt, params):
        num_tokens += len(output.token_ids)
    return num_tokens


async def measure(config: EngineConfig, load: Load) -> None:
    """Load the model once, then time each batch size in turn."""
    async with Engine(config) as engine:
        for count in load.counts:
            prompts = random_prompts(count, load.num_input)
            start = time.perf_counter()
            totals = await asyncio.gather(*(generate(engine, prompt, load.num_output) for prompt in prompts))
            seconds = time.perf_counter() - start
            assert totals == [load.num_output] * count, f"asked for {load.num_output} tokens each, got {totals}"
            report(count, load, seconds)


def report(count: int, load: Load, seconds: float) -> None:
    rate = count * load.num_output / seconds
    line = {"peer": "chatsrv", "n": count, "input": load.num_input, "output": load.num_output}
    print(json.dumps({**line, "seconds": round(seconds, 2), "out_tok_s": round(rate, 1)}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", default="1,8,32,64", help="batch sizes, with commas between")
    parser.add_argument("--input", type=int, default=128, help="tokens of each prompt")
    parser.add_argument("--output", type=int, default=128, help="tokens to generate after each")
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--dtype", default="auto", choices=("auto", "float32", "bfloat16", "float16"))
    parser.add_argument("--quantization", choices=("int8", "int4"))
    arguments = parser.parse_args()
    random.seed(0)
    config = EngineConfig(
        model=arguments.model,
        dtype=arguments.dtype,
        quantization=arguments.quantization,
        enable_prefix_cache=False,
    )
    counts = tuple(int(count) for count in arguments.n.split(","))
    asyncio.run(measure(config, Load(counts, arguments.input, arguments.output)))


if __name__ == "__main__":
    main()
