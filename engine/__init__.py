"""The engine's door: what chatsrv, bench/ and users of the engine alone may import."""

import kernels  # noqa: F401  # first: it sets up OpenMP, which torch then loads
from engine.api import (
    PRIORITIES,
    CachedPrefix,
    ChatMessage,
    FinishReason,
    ModelInfo,
    Notice,
    Output,
    PositionLogprobs,
    Priority,
    SamplingParams,
    TokenLogprob,
    Usage,
)
from engine.async_engine import Engine, EngineHealth, OutputStream
from engine.config import Dtype, EngineConfig, KVCacheDtype, PreemptionMode, Quantization
from engine.demonstration import Demonstration, Scene
from engine.errors import (
    ConfigError,
    EngineError,
    EngineStopped,
    InvalidRequest,
    ModelLoadError,
    QueueFull,
    RequestFailed,
)
from engine.loading.inventory import FoundModel, ModelNeeds, list_models
from engine.stats import EngineStats, Histogram, Occupancy, StepTimes
from engine.trace import EngineTrace, TracedBlock, TracedRequest, TracedShare, TracedStep

__all__ = [
    "PRIORITIES",
    "CachedPrefix",
    "ChatMessage",
    "ConfigError",
    "Demonstration",
    "Dtype",
    "Engine",
    "EngineConfig",
    "EngineError",
    "EngineHealth",
    "EngineStats",
    "EngineStopped",
    "EngineTrace",
    "FinishReason",
    "FoundModel",
    "Histogram",
    "InvalidRequest",
    "KVCacheDtype",
    "ModelInfo",
    "ModelLoadError",
    "ModelNeeds",
    "Notice",
    "Occupancy",
    "Output",
    "OutputStream",
    "PositionLogprobs",
    "PreemptionMode",
    "Priority",
    "Quantization",
    "QueueFull",
    "RequestFailed",
    "SamplingParams",
    "Scene",
    "StepTimes",
    "TokenLogprob",
    "TracedBlock",
    "TracedRequest",
    "TracedShare",
    "TracedStep",
    "Usage",
    "list_models",
]
