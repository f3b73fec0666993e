"""Memory of the engine: what is resident once the model is loaded, and whether it grows with requests.

    python -m bench.resident --requests 10000

The parts are torch's own base (a process that has imported it and computed one product), the weights, and the pool of
keys and values. Goals: the process holds at most 1.2 times the sum of the parts, once loaded without the pool, whose
pages count only from their first use; and after so many requests no more than after the first thousand. The requests
fill a small pool over and over.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random

from bench.machine import describe
from engine import Engine, EngineConfig, SamplingParams, list_models

NUM_BLOCKS = 512
AT_ONCE = 8

TORCH_ALONE = """
import torch
torch.nn.functional.linear(torch.ones(64, 256), torch.ones(256, 256))
print(open("/proc/self/statm").read())
"""


def resident_bytes(statm: str | None = None) -> int:
    """Of this process, or of the one that a text of /proc/self/statm is of."""
    text = statm or Path("/proc/self/statm").read_text(encoding="utf-8")
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


def torch_bytes() -> int:
    """Torch's own base. Our own imports bring others along, so another process tells it."""
    return resident_bytes(subprocess.check_output([sys.executable, "-c", TORCH_ALONE], text=True))


def megabytes(num_bytes: float) -> float:
    return round(num_bytes / 1e6, 1)


async def answer(engine: Engine, source: Random) -> None:
    """One short prompt, and one token."""
    prompt = [source.randrange(1000, 40000) for _ in range(source.randrange(2, 20))]
    async for _ in engine.generate(prompt, SamplingParams(max_tokens=1)):
        pass


async def measure(num_requests: int, base_bytes: int) -> None:
    """Print the parts after loading, then the resident size after each tenth of the requests."""
    config = EngineConfig(num_blocks=NUM_BLOCKS, num_swap_blocks=0)
    needs = list_models(config, [])[0].needs
    assert needs is not None
    async with Engine(config) as engine:
        loaded = resident_bytes()
        pool_bytes = NUM_BLOCKS * needs.block_bytes
        parts = {"torch": base_bytes, "weights": needs.weight_bytes, "pool": pool_bytes, "resident": loaded}
        needed = base_bytes + needs.weight_bytes
        ratio = loaded / needed
        print(json.dumps({**{name: megabytes(size) for name, size in parts.items()}, "ratio": round(ratio, 2)}))
        source = Random(0)
        for tenth in range(1, 11):
            for _ in range(0, num_requests // 10, AT_ONCE):
                await asyncio.gather(*(answer(engine, source) for _ in range(AT_ONCE)))
            resident = resident_bytes()
            ratio = resident / (needed + pool_bytes)
            line = {"requests": tenth * (num_requests // 10), "resident": megabytes(resident), "ratio": round(ratio, 2)}
            print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000)
    arguments = parser.parse_args()
    print(f"on {describe()}; megabytes", flush=True)
    asyncio.run(measure(arguments.requests, torch_bytes()))


if __name__ == "__main__":
    main()
