"""Tensors handed out once, and none forgotten."""

from __future__ import annotations

import pytest
import torch

from engine.errors import ModelLoadError
from engine.models.weights import Weights


def weights(*names: str) -> Weights:
    tensors = {name: lambda: torch.ones(2, dtype=torch.float32) for name in names}
    return Weights(tensors, torch.bfloat16, torch.device("cpu"))


def test_a_tensor_is_taken_once_in_the_wanted_dtype() -> None:
    source = weights("a.weight")
    assert "a.weight" in source
    assert source.take("a.weight").dtype == torch.bfloat16
    assert "a.weight" not in source
    with pytest.raises(ModelLoadError, match=r"no tensor a\.weight"):
        source.take("a.weight")
    assert source.take_if_present("a.weight") is None


def test_what_was_not_taken_is_named() -> None:
    source = weights("a.weight", "b.bias", "c", "d", "e")
    source.take("a.weight")
    with pytest.raises(ModelLoadError, match=r"its architecture lacks: b\.bias, c, d and 1 more$"):
        source.check_all_taken()


def test_buffers_that_follow_from_the_configuration_may_be_left() -> None:
    weights("model.layers.0.self_attn.rotary_emb.inv_freq", "transformer.h.0.attn.masked_bias").check_all_taken()
