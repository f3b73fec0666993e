"""The CPU backend: native code behind a plain C interface. Calls release the GIL and run on torch's OpenMP threads."""

from __future__ import annotations

import ctypes
import functools
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from kernels import reference
from kernels.contract import AttentionBatch, AttentionOptions, CacheLayout
from kernels.cpu_build import BuildError, InstructionSet, instruction_sets, load_library
from kernels.cpu_calls import AttentionCall, DecoderCall, LinearCall, NormCall, WriteCall

if TYPE_CHECKING:
    from kernels.cache import KVCache
    from kernels.decoder import DecoderStack
    from kernels.quantized import PackedWeight

logger = logging.getLogger(__name__)

_DTYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
_LINEAR_FUNCTIONS = {
    (torch.float32, torch.float32): "linear_float32_float32",
    (torch.bfloat16, torch.bfloat16): "linear_bfloat16_bfloat16",
    (torch.bfloat16, torch.float32): "linear_bfloat16_float32",
}
"""By the dtypes of inputs and outputs."""

_STATUS_MESSAGES = {
    1: "query_starts and context_lens do not fit each other, the tokens or the block tables",
    2: "block_tables holds a block id outside of the cache",
    3: "slot_mapping holds a slot outside of the cache",
}


class NativeBackend:
    """Kernels compiled for one instruction set.

    Raises:
        BuildError: they could not be compiled.
    """

    packed = True

    def __init__(self, instruction_set: InstructionSet) -> None:
        self.name = f"native ({instruction_set.name})"
        self._instruction_set = instruction_set
        self._elementwise = load_library(instruction_set, instruction_set.lanes)

    def supports(self, layout: CacheLayout) -> bool:
        """float32 and bfloat16; head_dim and block_size multiples of 8."""
        return layout.dtype in _DTYPES and layout.head_dim % 8 == 0 and layout.block_size % 8 == 0

    def write_kv(
        self, cache: KVCache, layer: int, key: torch.Tensor, value: torch.Tensor, batch: AttentionBatch
    ) -> None:
        self._write(cache, layer, (None, key, value), None, batch)

    def rotary_write_kv(
        self,
        cache: KVCache,
        layer: int,
        states: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        rotation: tuple[torch.Tensor, torch.Tensor],
        batch: AttentionBatch,
    ) -> None:
        self._write(cache, layer, states, rotation, batch)

    def paged_attention(
        self, query: torch.Tensor, cache: KVCache, layer: int, batch: AttentionBatch, options: AttentionOptions
    ) -> torch.Tensor:
        output = torch.empty(query.shape, dtype=query.dtype)
        call = _attention_call(query, output, cache, layer, batch, options)
        _check(self._function("attention", cache.layout.dtype, cache.layout)(ctypes.byref(call)))
        return output

    def copy_blocks(self, cache: KVCache, sources: Sequence[int], targets: Sequence[int]) -> None:
        reference.copy_blocks(cache, sources, targets)

    def rms_norm(
        self, x: torch.Tensor, weight: torch.Tensor, eps: float, residual: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if x.dtype not in _DTYPES:
            return reference.rms_norm(x, weight, eps, residual)
        normed = torch.empty_like(x)
        total = x if residual is None else torch.empty_like(x)
        call = NormCall(
            x=x.data_ptr(),
            residual=None if residual is None else residual.data_ptr(),
            weight=weight.data_ptr(),
            normed=normed.data_ptr(),
            total=None if residual is None else total.data_ptr(),
            num_rows=x.shape[0],
            size=x.shape[1],
            eps=eps,
            num_threads=torch.get_num_threads(),
        )
        self._function("rms_norm", x.dtype)(ctypes.byref(call))
        return normed, total

    def silu_and_mul(self, gate_up: torch.Tensor) -> torch.Tensor:
        if gate_up.dtype not in _DTYPES:
            return reference.silu_and_mul(gate_up)
        num_rows, size = gate_up.shape[0], gate_up.shape[1] // 2
        output = torch.empty((num_rows, size), dtype=gate_up.dtype)
        self._function("silu_and_mul", gate_up.dtype)(
            ctypes.c_void_p(gate_up.data_ptr()),
            ctypes.c_void_p(output.data_ptr()),
            ctypes.c_int64(num_rows),
            ctypes.c_int64(size),
            ctypes.c_int32(torch.get_num_threads()),
        )
        return output

    def quantized_linear(
        self,
        x: torch.Tensor,
        weight: PackedWeight,
        bias: torch.Tensor | None,
        residual: torch.Tensor | None,
        *,
        is_gated: bool,
        dtype: torch.dtype,
    ) -> torch.Tensor:
        name = _LINEAR_FUNCTIONS.get((x.dtype, dtype))
        if name is None:
            return reference.quantized_linear(x, weight, bias, residual, is_gated=is_gated, dtype=dtype)
        num_columns = weight.num_outputs // 2 if is_gated else weight.num_outputs
        output = torch.empty((x.shape[0], num_columns), dtype=dtype)
        call = LinearCall(
            x=x.data_ptr(),
            bias=None if bias is None else bias.data_ptr(),
            residual=None if residual is None else residual.data_ptr(),
            output=output.data_ptr(),
            levels=weight.levels.data_ptr(),
            scales=weight.scales.data_ptr(),
            minima=None if weight.minima is None else weight.minima.data_ptr(),
            num_rows=x.shape[0],
            num_inputs=weight.num_inputs,
            num_outputs=weight.num_outputs,
            bits=weight.bits,
            is_gated=is_gated,
            num_threads=torch.get_num_threads(),
        )
        _function(self._elementwise, name)(ctypes.byref(call))
        return output

    def decoder_layers(
        self,
        stack: DecoderStack,
        hidden: torch.Tensor,
        rotation: tuple[torch.Tensor, torch.Tensor],
        batch: AttentionBatch,
        cache: KVCache,
    ) -> torch.Tensor:
        layout, first = cache.layout, stack.layers[0]
        num_tokens = hidden.shape[0]
        hidden, normed = hidden.clone(), torch.empty_like(hidden)
        heads = hidden.new_empty((num_tokens, first.qkv[0].num_outputs // layout.head_dim, layout.head_dim))
        attended = hidden.new_empty((num_tokens, first.out[0].num_inputs))
        activated = hidden.new_empty((num_tokens, first.down[0].num_inputs))
        num_heads = heads.shape[1] - 2 * layout.num_kv_heads
        query, key, value = heads.split([num_heads, layout.num_kv_heads, layout.num_kv_heads], dim=1)
        options = AttentionOptions(first.scale)
        call = DecoderCall(
            layers=ctypes.addressof(stack.native),
            num_layers=len(stack.layers),
            layer_stride=cache.storage.stride(1) * cache.storage.element_size(),
            hidden_size=hidden.shape[1],
            hidden=hidden.data_ptr(),
            normed=normed.data_ptr(),
            heads=heads.data_ptr(),
            activated=activated.data_ptr(),
            write=_write_call(cache, 0, (query, key, value), rotation, batch),
            attention=_attention_call(query, attended, cache, 0, batch, options),
        )
        _check(self._function("decoder", layout.dtype, layout)(ctypes.byref(call)))
        return hidden

    def _write(
        self,
        cache: KVCache,
        layer: int,
        states: tuple[torch.Tensor | None, torch.Tensor, torch.Tensor],
        rotation: tuple[torch.Tensor, torch.Tensor] | None,
        batch: AttentionBatch,
    ) -> None:
        call = _write_call(cache, layer, states, rotation, batch)
        if not self._function("write", cache.layout.dtype)(ctypes.byref(call)):
            raise ValueError(_STATUS_MESSAGES[3])

    def _function(self, name: str, dtype: torch.dtype, layout: CacheLayout | None = None) -> Any:
        """One function of the library; where a layout is given, of that whose vectors fit into its blocks and heads."""
        lanes = self._instruction_set.lanes
        if layout is not None and lanes > 8 and (layout.head_dim % lanes or layout.block_size % lanes):
            lanes = 8
        return _function(load_library(self._instruction_set, lanes), f"{name}_{_DTYPES[dtype]}")


def best_native_backend() -> NativeBackend:
    """For the best instruction set that both the CPU and the compiler know.

    Raises:
        BuildError: nothing could be compiled.
    """
    *better, last = instruction_sets()
    for instruction_set in better:
        try:
            return NativeBackend(instruction_set)
        except BuildError as error:
            logger.info("kernels for %s cannot be built, trying simpler ones: %s", instruction_set.name, error)
    return NativeBackend(last)


def _attention_call(
    query: torch.Tensor,
    output: torch.Tensor,
    cache: KVCache,
    layer: int,
    batch: AttentionBatch,
    options: AttentionOptions,
) -> AttentionCall:
    layout = cache.layout
    return AttentionCall(
        query=query.data_ptr(),
        output=output.data_ptr(),
        layer=_layer_address(cache, layer),
        query_starts=batch.query_starts.data_ptr(),
        context_lens=batch.context_lens.data_ptr(),
        block_tables=batch.block_tables.data_ptr(),
        num_tokens=batch.num_tokens,
        query_stride=query.stride(0),
        block_stride=cache.storage.stride(0),
        num_blocks=cache.num_blocks,
        table_width=batch.block_tables.shape[1],
        num_rows=batch.num_rows,
        num_heads=query.shape[1],
        num_kv_heads=layout.num_kv_heads,
        head_dim=layout.head_dim,
        block_size=layout.block_size,
        sliding_window=options.sliding_window or 0,
        scale=options.scale,
        soft_cap=options.soft_cap or 0.0,
        num_threads=torch.get_num_threads(),
    )


def _write_call(
    cache: KVCache,
    layer: int,
    states: tuple[torch.Tensor | None, torch.Tensor, torch.Tensor],
    rotation: tuple[torch.Tensor, torch.Tensor] | None,
    batch: AttentionBatch,
) -> WriteCall:
    layout, (query, key, value) = cache.layout, states
    return WriteCall(
        query=None if query is None else query.data_ptr(),
        key=key.data_ptr(),
        value=value.data_ptr(),
        cos=None if rotation is None else rotation[0].data_ptr(),
        sin=None if rotation is None else rotation[1].data_ptr(),
        layer=_layer_address(cache, layer),
        slots=batch.slot_mapping.data_ptr(),
        num_tokens=batch.num_tokens,
        query_stride=0 if query is None else query.stride(0),
        key_stride=key.stride(0),
        value_stride=value.stride(0),
        block_stride=cache.storage.stride(0),
        num_blocks=cache.num_blocks,
        num_heads=0 if query is None else query.shape[1],
        num_kv_heads=layout.num_kv_heads,
        head_dim=layout.head_dim,
        num_rotated=0 if rotation is None else 2 * rotation[0].shape[1],
        block_size=layout.block_size,
        num_threads=torch.get_num_threads(),
    )


def _check(status: int) -> None:
    if status:
        raise ValueError(_STATUS_MESSAGES[status])


@functools.cache
def _function(library: ctypes.CDLL, name: str) -> Any:
    return getattr(library, name)


def _layer_address(cache: KVCache, layer: int) -> int:
    return cache.storage.data_ptr() + layer * cache.storage.stride(1) * cache.storage.element_size()
