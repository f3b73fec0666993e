"""The structures of cpu_calls.h, field by field, which name and explain what they hold."""

from __future__ import annotations

import ctypes


class AttentionCall(ctypes.Structure):
    _fields_ = (
        ("query", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("layer", ctypes.c_void_p),
        ("query_starts", ctypes.c_void_p),
        ("context_lens", ctypes.c_void_p),
        ("block_tables", ctypes.c_void_p),
        ("num_tokens", ctypes.c_int64),
        ("query_stride", ctypes.c_int64),
        ("block_stride", ctypes.c_int64),
        ("num_blocks", ctypes.c_int64),
        ("table_width", ctypes.c_int64),
        ("num_rows", ctypes.c_int32),
        ("num_heads", ctypes.c_int32),
        ("num_kv_heads", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("block_size", ctypes.c_int32),
        ("sliding_window", ctypes.c_int32),
        ("scale", ctypes.c_float),
        ("soft_cap", ctypes.c_float),
        ("num_threads", ctypes.c_int32),
    )


class WriteCall(ctypes.Structure):
    _fields_ = (
        ("query", ctypes.c_void_p),
        ("key", ctypes.c_void_p),
        ("value", ctypes.c_void_p),
        ("cos", ctypes.c_void_p),
        ("sin", ctypes.c_void_p),
        ("layer", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("num_tokens", ctypes.c_int64),
        ("query_stride", ctypes.c_int64),
        ("key_stride", ctypes.c_int64),
        ("value_stride", ctypes.c_int64),
        ("block_stride", ctypes.c_int64),
        ("num_blocks", ctypes.c_int64),
        ("num_heads", ctypes.c_int32),
        ("num_kv_heads", ctypes.c_int32),
        ("head_dim", ctypes.c_int32),
        ("num_rotated", ctypes.c_int32),
        ("block_size", ctypes.c_int32),
        ("num_threads", ctypes.c_int32),
    )


class NormCall(ctypes.Structure):
    _fields_ = (
        ("x", ctypes.c_void_p),
        ("residual", ctypes.c_void_p),
        ("weight", ctypes.c_void_p),
        ("normed", ctypes.c_void_p),
        ("total", ctypes.c_void_p),
        ("num_rows", ctypes.c_int64),
        ("size", ctypes.c_int64),
        ("eps", ctypes.c_float),
        ("num_threads", ctypes.c_int32),
    )


class LinearCall(ctypes.Structure):
    _fields_ = (
        ("x", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("residual", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("levels", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("minima", ctypes.c_void_p),
        ("num_rows", ctypes.c_int64),
        ("num_inputs", ctypes.c_int64),
        ("num_outputs", ctypes.c_int64),
        ("bits", ctypes.c_int32),
        ("is_gated", ctypes.c_int32),
        ("num_threads", ctypes.c_int32),
    )


class LinearWeight(ctypes.Structure):
    _fields_ = (
        ("levels", ctypes.c_void_p),
        ("scales", ctypes.c_void_p),
        ("minima", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("num_inputs", ctypes.c_int64),
        ("num_outputs", ctypes.c_int64),
        ("bits", ctypes.c_int64),
    )


class DecoderLayerWeights(ctypes.Structure):
    """``DecoderLayer`` there."""

    _fields_ = (
        ("attention_norm", ctypes.c_void_p),
        ("feed_forward_norm", ctypes.c_void_p),
        ("qkv", LinearWeight),
        ("out", LinearWeight),
        ("gate_up", LinearWeight),
        ("down", LinearWeight),
        ("scale", ctypes.c_float),
        ("eps", ctypes.c_float),
        ("sliding_window", ctypes.c_int64),
    )


class DecoderCall(ctypes.Structure):
    _fields_ = (
        ("layers", ctypes.c_void_p),
        ("num_layers", ctypes.c_int64),
        ("layer_stride", ctypes.c_int64),
        ("hidden_size", ctypes.c_int64),
        ("hidden", ctypes.c_void_p),
        ("normed", ctypes.c_void_p),
        ("heads", ctypes.c_void_p),
        ("activated", ctypes.c_void_p),
        ("write", WriteCall),
        ("attention", AttentionCall),
    )
