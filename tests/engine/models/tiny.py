"""Tiny models with random weights, made with transformers, and a plain loop that runs ours beside it."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from engine.batch import build_input
from engine.config import EngineConfig
from engine.loading import LoadedModel, load_model
from engine.plan import PlannedRow
from kernels import KVCache
from tests.engine.tiny_tokenizers import byte_tokenizer

VOCAB_SIZE = 320
BLOCK_SIZE = 8
SHAPE = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}


def make_tiny(model_type: str, **settings: Any) -> Any:
    """A random model of transformers in float32."""
    return make_model(AutoConfig.for_model(model_type, **{**SHAPE, **settings}))


def make_model(config: Any) -> Any:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            # Fresh norms and biases are ones and zeros, which would hide a missing or misplaced one.
            torch.nn.init.normal_(parameter, mean=1.0 if name.endswith("weight") else 0.0, std=0.3)
        else:
            # Where the head is tied, large embeddings make a model repeat its last token for ever.
            torch.nn.init.normal_(parameter, std=0.1 if id(parameter) in embeddings else 0.4)
    return model


def save_tiny(folder: Path, model_type: str, **settings: Any) -> Any:
    """Write a random model and a tokenizer to a folder; return the model as transformers runs it."""
    return save_model(folder, AutoConfig.for_model(model_type, **{**SHAPE, **settings}))


def save_model(folder: Path, config: Any) -> Any:
    model = make_model(config)
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    return model


def load_tiny(path: Path, **settings: Any) -> LoadedModel:
    return load_model(EngineConfig(model=str(path), dtype="float32", device="cpu", **settings))


def prompts(lengths: Sequence[int]) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(2, VOCAB_SIZE, (length,), generator=generator).tolist() for length in lengths]


def generate_with_transformers(model: Any, prompt: Sequence[int], num_tokens: int) -> list[int]:
    """Greedy continuation, end of sequence ignored."""
    with torch.inference_mode():
        ids = torch.tensor([list(prompt)])
        output = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=num_tokens,
            min_new_tokens=num_tokens,
            do_sample=False,
            eos_token_id=None,
        )
    return output[0, len(prompt) :].tolist()


class Rows:
    """Sequences in a paged cache of their own, their blocks scattered, stepped together."""

    def __init__(self, loaded: LoadedModel, prompts: Sequence[Sequence[int]], max_len: int) -> None:
        self._model = loaded.model
        blocks_each = -(-max_len // BLOCK_SIZE)
        num_blocks = len(prompts) * blocks_each
        order = torch.randperm(num_blocks, generator=torch.Generator().manual_seed(2)).tolist()
        self._tables = [array("i", order[i * blocks_each : (i + 1) * blocks_each]) for i in range(len(prompts))]
        self._cache = KVCache.allocate(self._model.layout(BLOCK_SIZE), num_blocks, loaded.device)
        self._cache.storage.fill_(float("nan"))
        self.tokens = [list(prompt) for prompt in prompts]
        self._computed = [0] * len(prompts)

    def step(self, num_tokens: Sequence[int]) -> None:
        """Compute so many tokens of each sequence; one whose last known token is computed gets the next one."""
        running = [index for index, count in enumerate(num_tokens) if count]
        rows = [self._row(index, num_tokens[index]) for index in running]
        inputs = build_input(rows, BLOCK_SIZE, torch.device("cpu"))
        with torch.inference_mode():
            hidden = self._model.forward(inputs.token_ids, inputs.positions, inputs.attention, self._cache)
            drawn = self._model.compute_logits(hidden[inputs.last_tokens]).argmax(dim=-1).tolist()
        for index, token_id in zip(running, drawn, strict=True):
            self._computed[index] += num_tokens[index]
            if self._computed[index] == len(self.tokens[index]):
                self.tokens[index].append(token_id)

    def run(self, chunk: int, num_new: int) -> list[list[int]]:
        """Greedy continuations: prompts in chunks beside others that already decode."""
        ends = [len(tokens) + num_new for tokens in self.tokens]
        while any(len(tokens) < end for tokens, end in zip(self.tokens, ends, strict=True)):
            self.step([
                min(chunk, len(tokens) - computed) if len(tokens) < end else 0
                for tokens, computed, end in zip(self.tokens, self._computed, ends, strict=True)
            ])  # fmt: skip
        return [tokens[-num_new:] for tokens in self.tokens]

    def _row(self, index: int, count: int) -> PlannedRow:
        start = self._computed[index]
        return PlannedRow(start, self.tokens[index][start : start + count], self._tables[index], draws=())
