"""The tensors of a checkpoint under the names that transformers gives them, read when asked for, each once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from engine.errors import ModelLoadError

Read = Callable[[], torch.Tensor]

# Buffers that older checkpoints carry although they follow from the configuration.
DERIVED_SUFFIXES = (".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias")


class Weights:
    """Named tensors, handed out in one dtype on one device.

    Asking for every tensor and then ``check_all_taken`` proves that the model uses the whole checkpoint: a bias or a
    norm that its code does not know would otherwise be left out in silence.
    """

    def __init__(self, tensors: Mapping[str, Read], dtype: torch.dtype, device: torch.device) -> None:
        self.dtype = dtype
        self.device = device
        self._tensors = dict(tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str) -> torch.Tensor:
        """The tensor, which is then no longer here.

        Raises:
            ModelLoadError: the checkpoint has no such tensor.
        """
        if name not in self._tensors:
            raise ModelLoadError(f"the checkpoint has no tensor {name}")
        return self._tensors.pop(name)().to(device=self.device, dtype=self.dtype)

    def take_if_present(self, name: str) -> torch.Tensor | None:
        return self.take(name) if name in self else None

    def check_all_taken(self) -> None:
        """Raise ModelLoadError if tensors are left that would change what the model computes."""
        left = sorted(name for name in self._tensors if not name.endswith(DERIVED_SUFFIXES))
        if left:
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            raise ModelLoadError(f"the checkpoint has tensors that its architecture lacks: {', '.join(left[:3])}{more}")
