"""Configurations as transformers has them, without what only its models need."""

# Annotations are left unquoted, for ``strict`` checks values against them.

from pathlib import Path
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig

from engine.errors import ModelLoadError


@strict
class LlamaConfig(PreTrainedConfig):  # type: ignore[misc]
    """Fields, defaults and checks are those of the class of this name in transformers.

    That one checks the range of a field of training with a module that brings ``torch.distributed`` and sympy along, 66
    MB that stay. transformers' own tables find a tokenizer or a model by the name of the class, and so with this one.
    """

    model_type = "llama"

    vocab_size: int = 32000
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    use_cache: bool = True
    pad_token_id: int | None = None
    bos_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    pretraining_tp: int | None = 1
    tie_word_embeddings: bool = False
    rope_parameters: dict[str, Any] | None = None
    attention_bias: bool = False
    attention_dropout: int | float | None = 0.0
    mlp_bias: bool = False
    head_dim: int | None = None

    def __post_init__(self, **others: Any) -> None:
        if self.head_dim is None:
            self.head_dim = self.hidden_size // self.num_attention_heads
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        super().__post_init__(**others)

    def validate_architecture(self) -> None:
        """Called by ``strict``."""
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(f"hidden_size {self.hidden_size} is no multiple of {self.num_attention_heads} heads")


def make_config(model_type: str, **settings: Any) -> Any:
    """The configuration of a type of model, defaults in place of what is not given."""
    if model_type == LlamaConfig.model_type:
        return LlamaConfig(**settings)
    return AutoConfig.for_model(model_type, **settings)


def read_folder_config(folder: Path) -> Any:
    """The transformers configuration in a folder.

    Raises:
        ModelLoadError: it cannot be read, or speaks of weights in a form that we cannot read.
    """
    try:
        settings, _ = PreTrainedConfig.get_config_dict(folder, local_files_only=True)
        kind = LlamaConfig if settings.get("model_type") == LlamaConfig.model_type else AutoConfig
        config = kind.from_pretrained(folder, name_or_path=str(folder), local_files_only=True)
    except Exception as error:
        raise ModelLoadError(f"{folder / 'config.json'} cannot be read: {error}") from error
    if getattr(config, "quantization_config", None):
        method = config.quantization_config.get("quant_method", "unknown")
        raise ModelLoadError(f"{folder} holds weights quantised by {method}, which we cannot read")
    return config
