"""Any other decoder of transformers, run by its own code with our paged attention in place of its attention.

transformers lets a caller name the function that computes attention (``attn_implementation``). Ours writes the keys and
values that it is given to the cache and attends over the blocks of each row. All T tokens of a step, of whatever
sequences, go through the model as one row; positions tell them apart.

Code that does anything else with a token's neighbours than attention would be wrong in silence. So a model is refused
if its class does not take an attention function, and each model must show, when it is loaded, that it gives the same
logits in our blocks as in its own attention.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AttentionInterface, AutoModelForCausalLM

import kernels
from engine.errors import ModelLoadError
from kernels import AttentionBatch, CacheLayout, KVCache

ATTENTION_NAME = "chatsrv_paged"

CHECK_LEN, CHECK_CHUNK, CHECK_BLOCK_SIZE = 24, 10, 16
TOLERANCES = {torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 8e-2}
"""How far the logits of the check may be off, as a share of their size."""


@dataclass(slots=True)
class Step:
    """What the attention function needs beside its arguments. Without a cache it only notes what it is asked for."""

    batch: AttentionBatch
    cache: KVCache | None = None
    asked: dict[int, AttentionShape] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What one layer asks of attention."""

    num_kv_heads: int
    key_dim: int
    value_dim: int
    sliding_window: int | None


class AdapterModel:
    """A decoder of transformers behind the interface of ``engine.models.Model``."""

    def __init__(self, model: Any) -> None:
        """``model`` is loaded with ``attn_implementation=ATTENTION_NAME``.

        Raises:
            ModelLoadError: the model cannot run over a paged cache, with the reason.
        """
        self._model = model
        self._head = _only_head(model)
        self._dtype: torch.dtype = model.dtype
        try:
            shapes = self._asked_shapes()
            self._num_layers = len(shapes)
            self._shape = shapes[0]
            self._check_against_own_attention()
        except (TypeError, ValueError, LookupError, AttributeError, RuntimeError) as error:
            name = model.config.model_type
            raise ModelLoadError(f"{name}: the code that transformers has for it does not run here: {error}") from error

    def layout(self, block_size: int) -> CacheLayout:
        return CacheLayout(self._num_layers, self._shape.num_kv_heads, self._shape.key_dim, block_size, self._dtype)

    def forward(
        self, token_ids: torch.Tensor, positions: torch.Tensor, batch: AttentionBatch, cache: KVCache
    ) -> torch.Tensor:
        return self._run(token_ids, positions, Step(batch, cache))

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._head(inputs_embeds=hidden[None], use_cache=False).logits
        return logits[0].float()

    def _run(self, token_ids: torch.Tensor, positions: torch.Tensor, step: Step) -> torch.Tensor:
        output = self._model.base_model(
            input_ids=token_ids[None], position_ids=positions[None], use_cache=False, paged_step=step
        )
        hidden: torch.Tensor = output.last_hidden_state
        return hidden[0]

    def _asked_shapes(self) -> list[AttentionShape]:
        """What each layer asks for, seen in a first pass over two tokens."""
        config = self._model.config.get_text_config()
        step = Step(_single_row(0, 2, self._model.device))
        with torch.inference_mode():
            self._run(*_tokens(config, 0, 2, self._model.device), step)
        if sorted(step.asked) != list(range(config.num_hidden_layers)):
            raise ModelLoadError(
                f"{config.model_type}: only {len(step.asked)} of {config.num_hidden_layers} layers have attention that "
                "can be replaced; what the others keep of a text does not lie in blocks of keys and values"
            )
        shapes = [step.asked[layer] for layer in range(config.num_hidden_layers)]
        if len({(shape.num_kv_heads, shape.key_dim, shape.value_dim) for shape in shapes}) > 1:
            raise ModelLoadError(f"{config.model_type}: its layers differ in heads or in head size")
        if shapes[0].key_dim != shapes[0].value_dim:
            raise ModelLoadError(
                f"{config.model_type}: keys of {shapes[0].key_dim} and values of {shapes[0].value_dim} numbers do not "
                "fit one block"
            )
        _check_windows(config, shapes)
        return shapes

    def _check_against_own_attention(self) -> None:
        """Compare logits over a few tokens: computed in two chunks in blocks, and at once by the model's own code."""
        config = self._model.config.get_text_config()
        device = self._model.device
        cache = KVCache.allocate(self.layout(CHECK_BLOCK_SIZE), 2, device)
        with torch.inference_mode():
            chunks = [
                self.forward(*_tokens(config, start, end, device), _single_row(start, end, device), cache)
                for start, end in ((0, CHECK_CHUNK), (CHECK_CHUNK, CHECK_LEN))
            ]
            ours = self.compute_logits(torch.cat(chunks))
            self._model.set_attn_implementation("eager")
            token_ids, _ = _tokens(config, 0, CHECK_LEN, device)
            theirs = self._model(input_ids=token_ids[None], use_cache=False).logits[0].float()
            self._model.set_attn_implementation(ATTENTION_NAME)
        error = float((ours - theirs).norm() / theirs.norm())
        if not error <= TOLERANCES[self._dtype]:
            raise ModelLoadError(
                f"{config.model_type}: its logits over paged blocks differ from its own by {error:.1%}; it does more "
                "with neighbouring tokens than attention"
            )


def load_adapter(folder: Path, config: Any, dtype: torch.dtype, device: torch.device) -> AdapterModel:
    """Load a decoder from a folder with the code that transformers has for it.

    Raises:
        ModelLoadError: the model cannot run over a paged cache, with the reason, or its files cannot be read.
    """
    check_architecture(config)
    AttentionInterface.register(ATTENTION_NAME, attend)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=dtype, attn_implementation=ATTENTION_NAME, local_files_only=True
        )
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        raise ModelLoadError(f"{folder} cannot be loaded as {config.model_type}: {error}") from error
    return AdapterModel(model.to(device).eval().requires_grad_(False))


def check_architecture(config: Any) -> None:
    """Refuse, before any weight is read, what is known not to run.

    Raises:
        ModelLoadError: with the reason.
    """
    name = config.model_type
    if getattr(config, "is_encoder_decoder", False):
        raise ModelLoadError(f"{name} is an encoder-decoder; only decoders can run")
    model_class = MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
    if model_class is None:
        raise ModelLoadError(f"{name} is no language model that transformers can generate text with")
    if getattr(model_class, "_is_stateful", False):
        raise ModelLoadError(f"{name} keeps a recurrent state, which does not lie in blocks of keys and values")
    if not getattr(model_class, "_supports_attention_backend", False):
        raise ModelLoadError(f"{name}: the code that transformers has for it takes no attention implementation")
    for kind in _layer_types(config.get_text_config()):
        if kind not in ("full_attention", "sliding_attention"):
            raise ModelLoadError(f"{name} has layers of {kind}; only full_attention and sliding_attention can run")


def _layer_types(config: Any) -> list[str]:
    return getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers


def _check_windows(config: Any, shapes: list[AttentionShape]) -> None:
    for layer, (kind, shape) in enumerate(zip(_layer_types(config), shapes, strict=True)):
        if kind == "sliding_attention" and shape.sliding_window is None:
            raise ModelLoadError(f"{config.model_type}: layer {layer} does not tell the attention function its window")


def attend(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    paged_step: Step | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """The attention function that transformers calls.

    Args:
        query: [1, Hq, T, D]; key and value: [1, Hkv, T, D].
        options: scaling, sliding_window and softcap where the model has them, and what we need not know.

    Returns:
        [1, T, Hq, D], and no weights.
    """
    if paged_step is None:
        raise ValueError("it does not hand its arguments on to the attention function")
    layer = int(getattr(module, "layer_idx", -1))
    query, key, value = (states[0].transpose(0, 1).contiguous() for states in (query, key, value))
    window = options.get("sliding_window")
    if paged_step.cache is None:
        paged_step.asked[layer] = AttentionShape(key.shape[1], key.shape[2], value.shape[2], window)
        return query[None, :, :, : value.shape[2]], None
    kernels.write_kv(paged_step.cache, layer, key, value, paged_step.batch)
    scale = options.get("scaling")
    attended = kernels.paged_attention(
        query,
        paged_step.cache,
        layer,
        paged_step.batch,
        scale=query.shape[2] ** -0.5 if scale is None else scale,
        sliding_window=window,
        soft_cap=options.get("softcap"),
    )
    return attended[None], None


class _GivenHidden(nn.Module):
    """Stands where a model has its decoder: the hidden states are those it is given as embeddings."""

    @property
    def decoder(self) -> _GivenHidden:
        """Some models call the decoder of their base model."""
        return self

    def forward(self, *args: Any, inputs_embeds: torch.Tensor, **kwargs: Any) -> _GivenOutput:
        return _GivenOutput(inputs_embeds)


class _GivenOutput:
    """Hidden states as a decoder returns them; None for whatever else a head passes on."""

    def __init__(self, hidden: torch.Tensor) -> None:
        self.last_hidden_state = hidden

    def __getattr__(self, name: str) -> None:
        return None

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.last_hidden_state


def _only_head(model: Any) -> Any:
    """A view of the model without its decoder, so that hidden states become logits by the model's own code."""
    head = copy.copy(model)
    head._modules = {**model._modules, model.base_model_prefix: _GivenHidden()}
    return head


def _tokens(config: Any, start: int, end: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Some token ids, and their positions."""
    positions = torch.arange(start, end, device=device)
    return (positions * 7919 + 13) % config.vocab_size, positions


def _single_row(start: int, end: int, device: torch.device) -> AttentionBatch:
    """A batch of one row, tokens start to end, in the first blocks of a cache."""
    return AttentionBatch(
        query_starts=torch.tensor([0, end - start], dtype=torch.int32, device=device),
        context_lens=torch.tensor([end], dtype=torch.int32, device=device),
        block_tables=torch.tensor([[0, 1]], dtype=torch.int32, device=device),
        slot_mapping=torch.arange(start, end, device=device),
        max_query_len=end - start,
        max_context_len=end,
    )
