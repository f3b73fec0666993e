"""Settings of the engine: frozen, typed once, checked on creation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.errors import ConfigError

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
KVCacheDtype = Literal["auto", "fp8"]
PreemptionMode = Literal["auto", "swap", "recompute"]
Quantization = Literal["int8", "int4"]

MAX_BLOCK_SIZE = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """How to run one model. None for a size means: chosen from the memory that is there.

    Attributes:
        model: ``smollm2`` (the demo model), a local folder, a ``.gguf`` file, or a hub id.
        dtype: of the weights; "auto" takes bfloat16 where the device is fast at it or the weights have few
            bits, float32 elsewhere.
        kv_cache_dtype: of keys and values; "auto" is the dtype of the weights, "fp8" (on a GPU) takes half the memory
            of bfloat16.
        device: "auto" takes a GPU if there is one, else the CPU.
        block_size: tokens per KV block, a multiple of 8.
        num_blocks: KV blocks on the device.
        num_swap_blocks: KV blocks in CPU memory, for preempted requests and evicted prefixes; 0 turns swapping off.
        max_model_len: tokens of prompt and answer together; None takes the model's own limit, or less if the blocks
            hold less.
        max_num_seqs: sequences that run at once.
        max_num_batched_tokens: tokens that one step computes at most.
        max_num_waiting: requests that may wait; one more is refused.
        ageing_s: after each such time of waiting a request ranks with the next higher class, never above it.
        preemption: "auto" picks by measured cost; the others force one way.
        enable_prefix_cache: reuse blocks of equal prefixes.
        quantization: weight-only; None keeps the weights as they are in the file.
        chat_template: Jinja text, or a file that holds it, in place of the model's own chat template.
    """

    model: str = "smollm2"
    dtype: Dtype = "auto"
    kv_cache_dtype: KVCacheDtype = "auto"
    device: str = "auto"
    block_size: int = 16
    num_blocks: int | None = None
    num_swap_blocks: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_num_waiting: int = 1024
    ageing_s: float = 30.0
    preemption: PreemptionMode = "auto"
    enable_prefix_cache: bool = True
    quantization: Quantization | None = None
    chat_template: str | None = None

    def __post_init__(self) -> None:
        _check(self.model != "", "model must not be empty")
        _check_choice("dtype", self.dtype, ("auto", "float32", "bfloat16", "float16"))
        _check_choice("kv_cache_dtype", self.kv_cache_dtype, ("auto", "fp8"))
        _check_choice("preemption", self.preemption, ("auto", "swap", "recompute"))
        _check_choice("quantization", self.quantization, (None, "int8", "int4"))
        _check_size("block_size", self.block_size, 8, MAX_BLOCK_SIZE)
        _check(self.block_size % 8 == 0, f"block_size must be a multiple of 8, not {self.block_size}")
        for name, low in (("num_blocks", 1), ("num_swap_blocks", 0), ("max_model_len", 2)):
            if getattr(self, name) is not None:
                _check_size(name, getattr(self, name), low)
        _check_size("max_num_seqs", self.max_num_seqs, 1)
        _check_size("max_num_batched_tokens", self.max_num_batched_tokens, 1)
        _check_size("max_num_waiting", self.max_num_waiting, 1)
        _check(self.ageing_s > 0, f"ageing_s must be above 0, not {self.ageing_s}")
        _check(
            self.max_num_batched_tokens >= self.max_num_seqs,
            f"max_num_batched_tokens ({self.max_num_batched_tokens}) must be at least max_num_seqs "
            f"({self.max_num_seqs}), so that every running sequence can have a token in each step",
        )
        if self.num_blocks is not None and self.max_model_len is not None:
            num_slots = self.num_blocks * self.block_size
            _check(
                self.max_model_len <= num_slots,
                f"max_model_len ({self.max_model_len}) is more than the cache holds: num_blocks ({self.num_blocks}) x "
                f"block_size ({self.block_size}) = {num_slots} tokens; lower max_model_len or raise num_blocks",
            )


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def _check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    _check(value in choices, f"{name} must be one of {', '.join(map(str, choices))}, not {value!r}")


def _check_size(name: str, value: object, low: int, high: int | None = None) -> None:
    limit = f"at least {low}" if high is None else f"from {low} to {high}"
    _check(isinstance(value, int) and not isinstance(value, bool), f"{name} must be an integer, {limit}, not {value!r}")
    assert isinstance(value, int)
    _check(value >= low and (high is None or value <= high), f"{name} must be {limit}, not {value}")
