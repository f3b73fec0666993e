"""Decoders of transformers over our blocks, token for token against transformers' own attention in float32."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AttentionInterface, AutoModelForCausalLM, Gemma3Config, T5Config, ViTConfig

from engine.config import PreemptionMode
from engine.errors import ModelLoadError
from engine.models.adapter import ATTENTION_NAME, AdapterModel, attend, load_adapter
from tests.engine.models.in_engine import check_in_engine
from tests.engine.models.tiny import SHAPE, generate_with_transformers, load_tiny, prompts, save_model, save_tiny

PREEMPTION_MODES: tuple[PreemptionMode, ...] = ("swap", "recompute")
NUM_NEW = 20
LENGTHS = (1, 7, 8, 30)

MOE = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}


DEEPSEEK = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "moe_intermediate_size": 16,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}

ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "opt": ("opt", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "opt, projected embeddings": ("opt", {"ffn_dim": 48, "word_embed_proj_dim": 16}),
    "gpt2": ("gpt2", {}),
    "gpt_neox": ("gpt_neox", {}),
    "gptj": ("gptj", {"rotary_dim": 4}),
    "gemma2": (
        "gemma2",
        {"head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 8, "attn_logit_softcapping": 5.0},
    ),
    "gemma3_text": ("gemma3_text", {"head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 8}),
    "phi": ("phi", {}),
    "starcoder2": ("starcoder2", {"sliding_window": 9}),
    "mixtral": ("mixtral", MOE),
    "qwen3_moe": ("qwen3_moe", MOE),
    "olmoe": ("olmoe", MOE),
    "cohere2": ("cohere2", {"head_dim": 8, "sliding_window": 6}),
    "gpt_bigcode, one key head": ("gpt_bigcode", {"multi_query": True}),
    "llama with another activation": ("llama", {"hidden_act": "gelu"}),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
async def test_greedy_tokens_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    """Batched, in chunks, preempted both ways and from the prefix cache."""
    model_type, settings = ARCHITECTURES[name]
    theirs = save_tiny(tmp_path, model_type, **settings)
    assert isinstance(load_tiny(tmp_path).model, AdapterModel)
    expected = [generate_with_transformers(theirs, prompt, NUM_NEW) for prompt in prompts(LENGTHS)]
    assert len({tuple(tokens) for tokens in expected}) == len(LENGTHS), (
        "a model that always says the same proves little"
    )
    for preemption in PREEMPTION_MODES:
        await check_in_engine(tmp_path, prompts(LENGTHS), expected, preemption)


async def test_a_model_that_also_sees_answers_texts(tmp_path: Path) -> None:
    """Gemma 3 from 4B on: the language model is one part of it, with a configuration of its own."""
    text = {**SHAPE, "head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 8}
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"image_size": 28, "patch_size": 14}
    config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    theirs = save_model(tmp_path, config)
    expected = [generate_with_transformers(theirs, prompt, NUM_NEW) for prompt in prompts(LENGTHS)]
    await check_in_engine(tmp_path, prompts(LENGTHS), expected, "recompute")


@pytest.mark.parametrize(
    ("model_type", "settings", "words"),
    [
        ("bloom", {}, "takes no attention implementation"),
        ("falcon", {}, "takes no attention implementation"),
        ("mpt", {"d_model": 32, "n_heads": 4, "n_layers": 2}, "takes no attention implementation"),
        ("mamba", {}, "recurrent state"),
        ("llama4_text", {"head_dim": 8}, "layers of chunked_attention"),
        ("nemotron", {}, "does not hand its arguments on"),
        ("deepseek_v3", DEEPSEEK, "keys of 16 and values of 8 numbers"),
        ("gpt_oss", {"head_dim": 8, **MOE}, "its logits over paged blocks differ from its own"),
        ("bert", {}, "its logits over paged blocks differ from its own"),
    ],
)
def test_what_cannot_run_is_refused_with_the_reason(
    model_type: str, settings: dict[str, Any], words: str, tmp_path: Path
) -> None:
    save_tiny(tmp_path, model_type, **settings)
    with pytest.raises(ModelLoadError, match=f"{model_type}.*{words}"):
        load_tiny(tmp_path)


@pytest.fixture
def opt(tmp_path: Path) -> Any:
    """A model of transformers with our attention, not yet adapted."""
    save_tiny(tmp_path, "opt", ffn_dim=48, word_embed_proj_dim=32)
    AttentionInterface.register(ATTENTION_NAME, attend)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation=ATTENTION_NAME)
    return model.eval()


def test_layers_without_attention_are_refused(opt: Any) -> None:
    class NoAttention(torch.nn.Module):
        def forward(self, hidden_states: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
            return hidden_states, None

    opt.model.decoder.layers[1].self_attn = NoAttention()
    with pytest.raises(ModelLoadError, match="only 2 of 3 layers have attention that can be replaced"):
        AdapterModel(opt)


def test_what_is_no_decoder_is_refused() -> None:
    for config, words in ((T5Config(), "t5 is an encoder-decoder"), (ViTConfig(), "vit is no language model")):
        with pytest.raises(ModelLoadError, match=words):
            load_adapter(Path(), config, torch.float32, torch.device("cpu"))


def test_a_model_that_mixes_tokens_otherwise_is_found_out(opt: Any) -> None:
    """Each token also gets something of the token before it, which in a batch may be another sequence's."""
    AdapterModel(opt)
    opt.model.decoder.layers[0].fc2.register_forward_hook(lambda module, args, output: output + output.roll(1, -2))
    with pytest.raises(ModelLoadError, match="more with neighbouring tokens than attention"):
        AdapterModel(opt)
