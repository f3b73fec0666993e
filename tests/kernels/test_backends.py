"""The choice of a backend: the best there is, and a warning that says what is lost where it is not there."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch

from kernels import CacheLayout, backends, multiplies_low_bits, reference, triton_backend
from kernels.backends import backend_for
from kernels.cpu_build import BuildError


@pytest.fixture(autouse=True)
def _choose_anew() -> Iterator[None]:
    caches = (backends._best_backend, backends._warn_unsupported)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def test_without_a_compiler_plain_pytorch_serves_and_says_what_is_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_compiler() -> None:
        raise BuildError("no C++ compiler found (g++)")

    monkeypatch.setattr(backends, "best_native_backend", no_compiler)
    with caplog.at_level(logging.WARNING, "kernels"):
        assert backend_for("cpu") is reference
        assert backend_for("cpu") is reference
    (warning,) = caplog.messages
    assert "no C++ compiler found" in warning
    assert "more than ten times slower" in warning


def test_a_layout_that_the_best_backend_cannot_work_on_falls_back_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Picky:
        name = "picky"

        def supports(self, layout: CacheLayout) -> bool:
            return layout.head_dim % 8 == 0

    monkeypatch.setattr(backends, "best_native_backend", Picky)
    odd, even = (CacheLayout(1, 1, head_dim, 16, torch.float32) for head_dim in (20, 24))
    with caplog.at_level(logging.WARNING, "kernels"):
        assert [backend_for("cpu", odd) for _ in range(2)] == [reference] * 2
        assert backend_for("cpu", even).name == "picky"
    assert len(caplog.messages) == 1
    assert "head_dim=20" in caplog.messages[0]


def test_a_device_that_nobody_has_written_kernels_for_has_plain_pytorch() -> None:
    assert backend_for("meta") is reference


def test_only_kernels_made_for_few_bits_keep_a_model_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton takes the reference's product, which unpacks the weights in every call."""
    monkeypatch.setattr("kernels.backend_for", lambda _: triton_backend)
    assert not multiplies_low_bits("cuda")
    monkeypatch.setattr("kernels.backend_for", lambda _: reference)
    assert not multiplies_low_bits("cpu")
