"""The configuration of Llama models against that of transformers, and what loading leaves unimported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import transformers
from huggingface_hub.errors import StrictDataclassError

from engine.loading.configuration import LlamaConfig, make_config, read_folder_config
from tests.engine.models.tiny import SHAPE, save_tiny
from tests.engine.tiny_tokenizers import CHAT_TEMPLATE

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a tiny shape": SHAPE,
    "a head size of its own": {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 32},
    "stretched positions": {"rope_parameters": {**LLAMA3, "rope_theta": 5e5, "original_max_position_embeddings": 32}},
    "an older file": {"rope_theta": 1e6, "rope_scaling": {"type": "linear", "factor": 2.0}, "torch_dtype": "bfloat16"},
    "fields of others": {"sliding_window": 512, "eos_token_id": [1, 2], "is_llama_config": True},
}
WRONG: dict[str, dict[str, Any]] = {
    "no number": {"hidden_size": "many"},
    "no fraction": {"rms_norm_eps": "small"},
    "no parameters": {"rope_parameters": 3},
    "heads that do not divide": {"hidden_size": 65, "num_attention_heads": 4},
}

HEAVY = ("accelerate", "sympy", "torch._dynamo", "torch.distributed.tensor", "transformers.modeling_utils")
SERVE = """
import asyncio, sys
from engine import ChatMessage, Engine, EngineConfig, SamplingParams

async def main(model, template=None):
    async with Engine(EngineConfig(model=model, num_blocks=8, num_swap_blocks=0, chat_template=template)) as engine:
        prompt = await engine.encode_chat([ChatMessage("user", "Hi")])
        async for _ in engine.generate(prompt, SamplingParams(max_tokens=2)):
            pass

asyncio.run(main(*sys.argv[1:]))
print(*sys.modules)
"""


@pytest.mark.parametrize("name", SETTINGS)
def test_llama_configurations_are_those_of_transformers(name: str) -> None:
    expected = transformers.LlamaConfig(**SETTINGS[name])
    assert make_config("llama", **SETTINGS[name]).to_dict() == expected.to_dict()


@pytest.mark.parametrize("name", WRONG)
def test_what_transformers_refuses_is_refused(name: str) -> None:
    for kind in (transformers.LlamaConfig, LlamaConfig):
        with pytest.raises(StrictDataclassError):
            kind(**WRONG[name])


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "gpt2"])
def test_a_folder_is_read_as_transformers_reads_it(model_type: str, tmp_path: Path) -> None:
    save_tiny(tmp_path, model_type)
    assert read_folder_config(tmp_path).to_dict() == transformers.AutoConfig.from_pretrained(tmp_path).to_dict()


@pytest.mark.parametrize("model", ["smollm2", "folder"])
def test_serving_imports_nothing_heavy(model: str, tmp_path: Path) -> None:
    arguments = [model]
    if model == "folder":
        save_tiny(tmp_path, "llama")
        arguments = [str(tmp_path), CHAT_TEMPLATE]
    done = subprocess.run([sys.executable, "-c", SERVE, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(HEAVY) & set(done.stdout.split()) == set()
