"""Which implementation serves which device: chosen once, and logged."""

from __future__ import annotations

import functools
import logging

from kernels import reference
from kernels.contract import Backend, CacheLayout
from kernels.cpu import best_native_backend
from kernels.cpu_build import BuildError

logger = logging.getLogger(__name__)


def backend_for(device_type: str, layout: CacheLayout | None = None) -> Backend:
    """The best backend for a device; the reference where that one does not support the layout."""
    best = _best_backend(device_type)
    if layout is None or best.supports(layout):
        return best
    _warn_unsupported(best.name, layout)
    return reference


@functools.cache
def _best_backend(device_type: str) -> Backend:
    choices = {"cpu": _native_or_reference, "cuda": _triton_or_reference}
    backend = choices[device_type]() if device_type in choices else reference
    logger.info("kernels on %s: %s", device_type, backend.name)
    return backend


def _triton_or_reference() -> Backend:
    """Triton is imported only here: a machine without a GPU need not have it."""
    try:
        from kernels import triton_backend
    except ImportError as error:
        logger.warning("no Triton kernels: %s. Plain PyTorch serves instead: right, but many times slower.", error)
        return reference
    return triton_backend


def _native_or_reference() -> Backend:
    try:
        return best_native_backend()
    except BuildError as error:
        logger.warning(
            "no native kernels: %s. Plain PyTorch serves instead: right, but attention is more than ten times slower. "
            "Install g++ or clang++, or name a compiler in CXX.",
            error,
        )
        return reference


@functools.cache
def _warn_unsupported(name: str, layout: CacheLayout) -> None:
    logger.warning("the %s kernels do not support %s: attention falls back to plain PyTorch, much slower", name, layout)
