"""What a GGUF file says in llama.cpp's words, said in transformers' words: configuration and tensor names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from engine.errors import ModelLoadError
from engine.loading.configuration import make_config
from engine.loading.gguf import GGUFFile, GGUFTensor
from engine.models.weights import Read
from kernels import GroupedWeight

MODEL_TYPES = ("llama", "qwen2", "qwen3", "smollm3", "olmo2", "phi3", "granite")
"""Architectures we translate; llama.cpp and transformers call them alike. Mistral's files say llama."""

PERMUTED_TYPES = ("llama", "smollm3", "granite")
"""Those whose query and key rows llama.cpp reorders, to rotate neighbours in place of halves."""

TENSOR_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

# Factors that follow from the rope parameters; those of long rope go into the configuration.
LONG_ROPE = ("rope_factors_long.weight", "rope_factors_short.weight")


def read_config(file: GGUFFile) -> Any:
    """The transformers configuration that the file describes.

    Raises:
        ModelLoadError: an architecture we do not translate, or a value is missing.
    """
    model_type = file.metadata.get("general.architecture")
    if model_type not in MODEL_TYPES:
        raise ModelLoadError(
            f"{file.path} holds the architecture {model_type!r}; from GGUF we run {', '.join(MODEL_TYPES)}. Others run "
            "from a folder with safetensors"
        )
    prefix = f"{model_type}."
    values = {key.removeprefix(prefix): value for key, value in file.metadata.items() if key.startswith(prefix)}
    try:
        settings = _shape(values, file) | _details(values, file)
    except KeyError as error:
        raise ModelLoadError(f"{file.path} lacks the metadata {prefix}{error.args[0]}") from error
    return make_config(model_type, **settings)


def _shape(values: Mapping[str, Any], file: GGUFFile) -> dict[str, Any]:
    num_heads = values["attention.head_count"]
    return {
        "hidden_size": values["embedding_length"],
        "intermediate_size": values["feed_forward_length"],
        "num_hidden_layers": values["block_count"],
        "num_attention_heads": num_heads,
        "num_key_value_heads": values.get("attention.head_count_kv", num_heads),
        "head_dim": values.get("attention.key_length", values["embedding_length"] // num_heads),
        "max_position_embeddings": values["context_length"],
        "rms_norm_eps": values["attention.layer_norm_rms_epsilon"],
        "vocab_size": file.tensors["token_embd.weight"].shape[0],
        "tie_word_embeddings": "output.weight" not in file.tensors,
    }


def _details(values: Mapping[str, Any], file: GGUFFile) -> dict[str, Any]:
    """What only some architectures have, and the ids of control tokens."""
    renamed = {
        "sliding_window": values.get("attention.sliding_window"),
        "embedding_multiplier": values.get("embedding_scale"),
        "residual_multiplier": values.get("residual_scale"),
        "attention_multiplier": values.get("attention.scale"),
        "logits_scaling": values.get("logit_scale"),
        "original_max_position_embeddings": values.get("rope.scaling.original_context_length"),
        "bos_token_id": file.metadata.get("tokenizer.ggml.bos_token_id"),
    }
    ends = [file.metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot")]
    return {
        **{name: value for name, value in renamed.items() if value is not None},
        "eos_token_id": sorted({token_id for token_id in ends if token_id is not None}),
        "pad_token_id": None,
        "rope_parameters": _rope_parameters(values, file),
    }


def _rope_parameters(values: Mapping[str, Any], file: GGUFFile) -> dict[str, Any]:
    head_dim = values.get("attention.key_length", values["embedding_length"] // values["attention.head_count"])
    parameters: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": values.get("rope.freq_base", 10000.0),
        "partial_rotary_factor": values.get("rope.dimension_count", head_dim) / head_dim,
    }
    if all(name in file.tensors for name in LONG_ROPE):
        long, short = (file.tensors[name].dequantize(torch.float32).tolist() for name in LONG_ROPE)
        return {**parameters, "rope_type": "longrope", "long_factor": long, "short_factor": short}
    kind = values.get("rope.scaling.type", "none")
    if kind == "none":
        return parameters
    parameters |= {"rope_type": kind, "factor": values["rope.scaling.factor"]}
    if kind == "yarn":
        parameters["original_max_position_embeddings"] = values["rope.scaling.original_context_length"]
    return parameters


def read_tensors(file: GGUFFile, config: Any, *, keep_low_bits: bool) -> dict[str, Read]:
    """A reader for each tensor, under the name that transformers gives it; low-bit matrices as such or as floats."""
    tensors = {name: tensor for name, tensor in file.tensors.items() if name not in LONG_ROPE}
    read = _read_stored if keep_low_bits else _read_floats
    return {
        _translate(name, config): partial(read, _unpermuted(name, tensor, config)) for name, tensor in tensors.items()
    }


def _translate(name: str, config: Any) -> str:
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
    if match is None or match[2] not in TENSOR_NAMES:
        return name
    layer, stem, kind = match.groups()
    translated = TENSOR_NAMES[stem]
    if stem == "ffn_up" and config.model_type == "phi3":
        translated = "mlp.gate_up_proj"
    return f"{translated}.{kind}" if layer is None else f"model.layers.{layer}.{translated}.{kind}"


def _read_floats(tensor: GGUFTensor) -> torch.Tensor:
    return tensor.dequantize(torch.float32)


def _read_stored(tensor: GGUFTensor) -> torch.Tensor | GroupedWeight:
    return tensor.grouped() or _read_floats(tensor)


def _unpermuted(name: str, tensor: GGUFTensor, config: Any) -> GGUFTensor:
    """The tensor with its rows as transformers orders them; whatever the format, a row's bytes stay together."""
    heads = {".attn_q.": config.num_attention_heads, ".attn_k.": config.num_key_value_heads}
    for part, num_heads in heads.items():
        if part in name and config.model_type in PERMUTED_TYPES:
            rows = _unpermute(tensor.rows.view(tensor.shape[0], -1), num_heads)
            return replace(tensor, rows=rows.view(tensor.rows.shape))
    return tensor


def _unpermute(rows: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Row 2 i + j of a head is row j D / 2 + i in transformers, where rotary pairs are D / 2 apart."""
    pairs = rows.view(num_heads, -1, 2, *rows.shape[1:])
    return pairs.transpose(1, 2).reshape(rows.shape)
