"""GGUF files of tiny models, written with the ``gguf`` package as llama.cpp's converter would."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import gguf
import torch
from gguf import GGMLQuantizationType, GGUFWriter

from tests.engine.models.tiny import VOCAB_SIZE
from tests.engine.tiny_tokenizers import CHAT_TEMPLATE, SPECIAL_TOKENS, byte_tokenizer

PERMUTED = ("llama", "mistral", "smollm3", "granite")
CONTROL, NORMAL, UNUSED = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL, gguf.TokenType.UNUSED


def write_gguf(
    path: Path,
    model: Any,
    quantization: str = "F32",
    extra: Mapping[str, torch.Tensor] = MappingProxyType({}),
    sampling: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Write a model of transformers with a byte tokenizer; matrices in ``quantization``, vectors in float32."""
    config = model.config
    name = "llama" if config.model_type == "mistral" else config.model_type
    writer = GGUFWriter(path, name)
    _add_shape(writer, config)
    _add_tokenizer(writer)
    for key, value in sampling.items():
        writer.add_float32(f"general.sampling.{key}", value)
    for tensor_name, values in (*_named_tensors(model, name), *extra.items()):
        kind = GGMLQuantizationType[quantization if values.dim() > 1 else "F32"]
        writer.add_tensor(tensor_name, gguf.quants.quantize(values.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def dequantized(values: torch.Tensor, quantization: str) -> torch.Tensor:
    """What remains of values that were stored in this format."""
    kind = GGMLQuantizationType[quantization]
    return torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(values.numpy(), kind), kind).copy())


def _add_shape(writer: GGUFWriter, config: Any) -> None:
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
    rope = config.rope_parameters
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if rope.get("original_max_position_embeddings"):
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if getattr(config, "sliding_window", None):
        writer.add_sliding_window(config.sliding_window)
    if config.model_type == "granite":
        writer.add_embedding_scale(config.embedding_multiplier)
        writer.add_residual_scale(config.residual_multiplier)
        writer.add_attention_scale(config.attention_multiplier)
        writer.add_logit_scale(config.logits_scaling)


def _add_tokenizer(writer: GGUFWriter) -> None:
    tokenizer = byte_tokenizer()
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    num_unused = VOCAB_SIZE - len(tokens) - 1
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([*tokens, "ab", *(f"[PAD{index}]" for index in range(num_unused))])
    writer.add_token_types([CONTROL] * len(SPECIAL_TOKENS) + [NORMAL] * 257 + [UNUSED] * num_unused)
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_eot_token_id(2)
    writer.add_chat_template(CHAT_TEMPLATE)


def _named_tensors(model: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    arch = next(arch for arch, arch_name in gguf.MODEL_ARCH_NAMES.items() if arch_name == name)
    names = gguf.get_tensor_name_map(arch, model.config.num_hidden_layers)
    state = model.state_dict()
    for key, values in state.items():
        if key == "lm_head.weight" and model.config.tie_word_embeddings:
            continue
        stem, suffix = key.rsplit(".", 1)
        if name in PERMUTED and stem.endswith(("q_proj", "k_proj")):
            heads = model.config.num_attention_heads if "q_proj" in stem else model.config.num_key_value_heads
            values = _permuted(values, heads)
        yield f"{names.get_name(stem)}.{suffix}", values.contiguous()


def _permuted(rows: torch.Tensor, num_heads: int) -> torch.Tensor:
    """Halves of a head become neighbours, as llama.cpp rotates them."""
    return rows.reshape(num_heads, 2, -1, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)
