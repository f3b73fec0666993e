"""Llama-like decoders in lean code: Llama, Mistral, Qwen2, Qwen3, SmolLM3, OLMo2, Phi-3, Granite.

They share one shape (attention with rotary positions and grouped heads, then a gated feed-forward layer, each with an
RMS norm and a residual connection) and differ in details, which are read off the configuration and the checkpoint:
biases, norms of queries and keys, where the layer norms stand, layers without rotary positions, windows, multipliers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

import kernels
from engine.models.linear import AnyLinear, Embedding, QuantizedLinear, take_linear
from engine.models.rotary import Rotary
from engine.models.weights import Weights
from kernels import TILE, AttentionBatch, CacheLayout, DecoderLayer, DecoderStack, KVCache

LEAN_MODEL_TYPES = frozenset({"llama", "mistral", "qwen2", "qwen3", "smollm3", "olmo2", "phi3", "granite"})

Rotation = tuple[torch.Tensor, torch.Tensor]


def is_llama_like(config: Any) -> bool:
    """Whether a transformers configuration describes a model that ``LlamaModel`` computes."""
    return config.model_type in LEAN_MODEL_TYPES and config.hidden_act in ("silu", "swish")


class LlamaModel:
    """The whole decoder. T tokens of any mix of sequences go through at once; H is the hidden size, V the ids."""

    def __init__(self, config: Any, weights: Weights, max_model_len: int) -> None:
        self._dtype = weights.dtype
        self._num_layers = config.num_hidden_layers
        self._num_kv_heads = config.num_key_value_heads
        self._head_dim = head_dim(config)
        self._embedding = Embedding(weights.take_matrix("model.embed_tokens.weight", min_bits=8), weights.dtype)
        self._embedding_multiplier = getattr(config, "embedding_multiplier", 1.0)
        self._rotary = Rotary(config, max_model_len, weights.device)
        if (factors := weights.take_if_present("rope_freqs.weight")) is not None:
            self._rotary.divide_frequencies(factors)
        layer = PostNormLayer if config.model_type == "olmo2" else PreNormLayer
        self._layers = [layer(config, weights, index) for index in range(self._num_layers)]
        self._stack = _few_bit_stack(self._layers)
        self._norm = weights.take("model.norm.weight")
        self._norm_eps = config.rms_norm_eps
        self._head = self._take_head(config, weights)
        self._logits_divisor = getattr(config, "logits_scaling", 1.0)
        weights.check_all_taken()

    def _take_head(self, config: Any, weights: Weights) -> AnyLinear:
        if config.tie_word_embeddings or "lm_head.weight" not in weights:
            weights.take_if_present("lm_head.weight")
            return self._embedding.as_head()
        return take_linear(weights, "lm_head", min_bits=8)

    def layout(self, block_size: int) -> CacheLayout:
        return CacheLayout(self._num_layers, self._num_kv_heads, self._head_dim, block_size, self._dtype)

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, batch: AttentionBatch, cache: KVCache
    ) -> torch.Tensor:
        """token_ids [T] and positions [T] int64 -> hidden states [T, H]; keys and values go to the cache."""
        hidden = self._embedding(token_ids)
        if self._embedding_multiplier != 1.0:
            hidden = hidden * self._embedding_multiplier
        rotation = self._rotary(positions)
        if self._stack is not None:
            hidden = kernels.decoder_layers(self._stack, hidden, rotation, batch, cache)
            return kernels.rms_norm(hidden, self._norm, self._norm_eps)
        residual: torch.Tensor | None = None
        for layer in self._layers:
            hidden, residual = layer(hidden, residual, rotation, batch, cache)
        return norm_and_residual(hidden, residual, self._norm, self._norm_eps)[0]

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states [S, H] -> logits [S, V] float32."""
        logits = self._head(hidden).float()
        return logits if self._logits_divisor == 1.0 else logits / self._logits_divisor


class PreNormLayer:
    """hidden + attention(norm(hidden)), then the same with the feed-forward layer.

    The addition is left to the norm that follows, which does both in one pass: a layer returns its last term and the
    residual it is to be added to.
    """

    def __init__(self, config: Any, weights: Weights, index: int) -> None:
        prefix = f"model.layers.{index}"
        self._eps = config.rms_norm_eps
        self._input_norm = weights.take(f"{prefix}.input_layernorm.weight")
        self._attention = Attention(config, weights, index)
        self._feed_forward_norm = weights.take(f"{prefix}.post_attention_layernorm.weight")
        self._feed_forward = FeedForward(weights, f"{prefix}.mlp")
        self._residual_multiplier = getattr(config, "residual_multiplier", 1.0)

    def __call__(
        self,
        hidden: torch.Tensor,
        residual: torch.Tensor | None,
        rotation: Rotation,
        batch: AttentionBatch,
        cache: KVCache,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        normed, residual = norm_and_residual(hidden, residual, self._input_norm, self._eps)
        hidden = self._scaled(self._attention(normed, rotation, batch, cache))
        normed, residual = norm_and_residual(hidden, residual, self._feed_forward_norm, self._eps)
        return self._scaled(self._feed_forward(normed)), residual

    def few_bit_form(self) -> DecoderLayer | None:
        """The layer as kernels compute it in one call; None if it has other weights, or parts that those don't know."""
        linears = (*self._attention.plain_linears(), self._feed_forward.gate_up, self._feed_forward.down)
        few_bits = [(each.weight, each.bias) for each in linears if isinstance(each, QuantizedLinear)]
        if len(few_bits) < 4 or self._residual_multiplier != 1.0 or few_bits[2][0].num_outputs % (2 * TILE):
            return None
        qkv, out, gate_up, down = few_bits
        return DecoderLayer(
            attention_norm=self._input_norm,
            feed_forward_norm=self._feed_forward_norm,
            qkv=qkv,
            out=out,
            gate_up=gate_up,
            down=down,
            scale=self._attention.scale,
            eps=self._eps,
            sliding_window=self._attention.window,
        )

    def _scaled(self, term: torch.Tensor) -> torch.Tensor:
        return term if self._residual_multiplier == 1.0 else term * self._residual_multiplier


def _few_bit_stack(layers: Sequence[PreNormLayer | PostNormLayer]) -> DecoderStack | None:
    """All layers as one, if each has a form with few bits."""
    forms = [layer.few_bit_form() if isinstance(layer, PreNormLayer) else None for layer in layers]
    few_bits = [form for form in forms if form is not None]
    return DecoderStack(few_bits) if len(few_bits) == len(layers) else None


class PostNormLayer:
    """hidden + norm(attention(hidden)), then the same with the feed-forward layer (OLMo 2)."""

    def __init__(self, config: Any, weights: Weights, index: int) -> None:
        prefix = f"model.layers.{index}"
        self._eps = config.rms_norm_eps
        self._attention = Attention(config, weights, index)
        self._attention_norm = weights.take(f"{prefix}.post_attention_layernorm.weight")
        self._feed_forward = FeedForward(weights, f"{prefix}.mlp")
        self._feed_forward_norm = weights.take(f"{prefix}.post_feedforward_layernorm.weight")

    def __call__(
        self,
        hidden: torch.Tensor,
        residual: torch.Tensor | None,
        rotation: Rotation,
        batch: AttentionBatch,
        cache: KVCache,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        attended = self._attention(hidden, rotation, batch, cache)
        hidden = hidden + kernels.rms_norm(attended, self._attention_norm, self._eps)
        return hidden + kernels.rms_norm(self._feed_forward(hidden), self._feed_forward_norm, self._eps), None


class Attention:
    """Grouped-query attention over the paged cache."""

    def __init__(self, config: Any, weights: Weights, index: int) -> None:
        prefix = f"model.layers.{index}.self_attn"
        self._index = index
        self._num_heads = config.num_attention_heads
        self._num_kv_heads = config.num_key_value_heads
        self._head_dim = head_dim(config)
        self.scale = getattr(config, "attention_multiplier", self._head_dim**-0.5)
        self.window = sliding_window(config, index)
        self._rotates = bool(getattr(config, "no_rope_layers", None) is None or config.no_rope_layers[index])
        if f"{prefix}.qkv_proj.weight" in weights:
            self._qkv = take_linear(weights, f"{prefix}.qkv_proj")
        else:
            self._qkv = take_linear(weights, f"{prefix}.q_proj", f"{prefix}.k_proj", f"{prefix}.v_proj")
        self._out = take_linear(weights, f"{prefix}.o_proj")
        self._query_norm = weights.take_if_present(f"{prefix}.q_norm.weight")
        self._key_norm = weights.take_if_present(f"{prefix}.k_norm.weight")
        self._eps = config.rms_norm_eps

    def __call__(self, x: torch.Tensor, rotation: Rotation, batch: AttentionBatch, cache: KVCache) -> torch.Tensor:
        num_tokens = x.shape[0]
        heads = self._qkv(x).view(num_tokens, -1, self._head_dim)
        query, key, value = heads.split([self._num_heads, self._num_kv_heads, self._num_kv_heads], dim=1)
        if self._query_norm is not None and self._key_norm is not None:
            query = self._normed(query, self._query_norm)
            key = self._normed(key, self._key_norm)
        if self._rotates:
            kernels.rotary_write_kv(cache, self._index, (query, key, value), rotation, batch)
        else:
            kernels.write_kv(cache, self._index, key, value, batch)
        attended = kernels.paged_attention(
            query, cache, self._index, batch, scale=self.scale, sliding_window=self.window
        )
        return self._out(attended.view(num_tokens, -1))

    def plain_linears(self) -> tuple[AnyLinear, ...]:
        """Both products, if nothing else happens to queries and keys than rotation."""
        return (self._qkv, self._out) if self._rotates and self._query_norm is None else ()

    def _normed(self, states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Norm of each head (Qwen3), or of all heads together where the weight is that long (OLMo 2)."""
        rows = states.reshape(-1, weight.shape[0]).contiguous()
        return kernels.rms_norm(rows, weight, self._eps).view(states.shape)


class FeedForward:
    """down(silu(gate(x)) * up(x)), with gate and up as one product."""

    def __init__(self, weights: Weights, prefix: str) -> None:
        if f"{prefix}.gate_up_proj.weight" in weights:
            self.gate_up = take_linear(weights, f"{prefix}.gate_up_proj")
        else:
            self.gate_up = take_linear(weights, f"{prefix}.gate_proj", f"{prefix}.up_proj")
        self.down = take_linear(weights, f"{prefix}.down_proj")

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.gate_up.gated(x))


def norm_and_residual(
    x: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """(norm of x + residual, that sum); without a residual, x stands for the sum."""
    if residual is None:
        return kernels.rms_norm(x, weight, eps), x
    return kernels.rms_norm(x, weight, eps, residual)


def head_dim(config: Any) -> int:
    """Numbers per attention head, which not every configuration spells out."""
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def sliding_window(config: Any, layer: int) -> int | None:
    """How many positions a layer sees, its own included; None for all."""
    layer_types = getattr(config, "layer_types", None)
    if layer_types is not None and layer_types[layer] != "sliding_attention":
        return None
    window = getattr(config, "sliding_window", None)
    return None if window is None else int(window)
