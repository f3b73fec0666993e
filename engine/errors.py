"""Every way the engine says no.

EngineError
├── ConfigError       a setting cannot work; raised before anything is loaded
├── ModelLoadError    the model's files are missing, damaged or of an unsupported kind
├── InvalidRequest    the caller's input; raised before the request is queued
├── QueueFull         the bounded queue has no room; worth retrying later
├── RequestFailed     this request broke while running; its neighbours did not
└── EngineStopped     the engine is closed or its model thread has died
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of all errors that the engine raises on purpose."""


class ConfigError(EngineError):
    """A setting, alone or with another, cannot work. The message names it and the limit."""


class ModelLoadError(EngineError):
    """The model cannot be loaded. The message names the file, field or architecture at fault."""


class InvalidRequest(EngineError):
    """The caller's input is refused before it is queued.

    Attributes:
        field: name of the offending parameter, as the engine's API spells it.
        code: stable machine-readable reason, e.g. ``"context_length_exceeded"``.
    """

    def __init__(self, field: str, message: str, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.field = field
        self.code = code


class QueueFull(EngineError):
    """The waiting queue holds ``max_num_waiting`` requests; nothing was queued.

    Attributes:
        retry_after_s: rough time until a place may be free.
    """

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RequestFailed(EngineError):
    """One request broke while running. Its blocks are back in the pool; others go on."""


class EngineStopped(EngineError):
    """The engine is closed, or its model thread has died; nothing more will run."""
