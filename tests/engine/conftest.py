"""What the engine's tests share."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from engine.loading.sources import find_model


@pytest.fixture(scope="session")
def smollm2_by_transformers() -> Any:
    """The demo model in float32, its GGUF file read and run by transformers alone: the truth to compare with."""
    from transformers import AutoModelForCausalLM

    files = find_model("smollm2")
    assert files.gguf is not None
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # many small operations, which a second thread slows down on a busy machine
    model = AutoModelForCausalLM.from_pretrained(files.folder, gguf_file=files.gguf.name, dtype=torch.float32)
    torch.set_num_threads(before)
    return model.eval()
