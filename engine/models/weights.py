"""The tensors of a checkpoint under the names that transformers gives them, read when asked for, each once."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from engine.errors import ModelLoadError
from kernels import Bits, GroupedWeight, join, quantize
from kernels.quantized import GROUP

Read = Callable[[], torch.Tensor | GroupedWeight]

# Buffers that older checkpoints carry although they follow from the configuration.
DERIVED_SUFFIXES = (".rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias")


class Weights:
    """Named tensors, handed out in one dtype on one device; matrices of linear layers also with few bits.

    Asking for every tensor and then ``check_all_taken`` proves that the model uses the whole checkpoint: a bias or a
    norm that its code does not know would otherwise be left out in silence.
    """

    def __init__(
        self, tensors: Mapping[str, Read], dtype: torch.dtype, device: torch.device, max_bits: Bits | None = None
    ) -> None:
        """``max_bits`` says to how many bits ``take_matrix`` rounds; None leaves matrices as they are stored."""
        self.dtype = dtype
        self.device = device
        self.max_bits = max_bits
        self._tensors = dict(tensors)

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def take(self, name: str) -> torch.Tensor:
        """The tensor, which is then no longer here.

        Raises:
            ModelLoadError: the checkpoint has no such tensor.
        """
        return self._floats(self._read(name))

    def take_matrix(self, *names: str, min_bits: Bits = 4) -> torch.Tensor | GroupedWeight:
        """The outputs of several matrices [N, K] one after the other, in few bits if they are stored so or to be so.

        Matrices stored in different forms are brought to 8 bits, if all of them are low-bit ones, else to floats.

        Args:
            min_bits: are kept whatever the settings say; 8 for a vocabulary, where 4 would cost more than they save.
        """
        parts = [self._read(name) for name in names]
        stored = [part for part in parts if isinstance(part, GroupedWeight)]
        all_stored = len(stored) == len(parts)
        bits = max(self.max_bits, min_bits) if self.max_bits else None
        if all_stored and {part.bits for part in stored} in ({4}, {bits or 8}):
            return join(stored)
        bits = bits or (8 if all_stored else None)
        if bits is None or parts[0].shape[1] % GROUP:
            return torch.cat([self._floats(part) for part in parts])
        return quantize(torch.cat([_dequantized(part).float() for part in parts]), bits)

    def take_if_present(self, name: str) -> torch.Tensor | None:
        return self.take(name) if name in self else None

    def _read(self, name: str) -> torch.Tensor | GroupedWeight:
        if name not in self._tensors:
            raise ModelLoadError(f"the checkpoint has no tensor {name}")
        return self._tensors.pop(name)()

    def _floats(self, stored: torch.Tensor | GroupedWeight) -> torch.Tensor:
        return _dequantized(stored).to(device=self.device, dtype=self.dtype)

    def check_all_taken(self) -> None:
        """Raise ModelLoadError if tensors are left that would change what the model computes."""
        left = sorted(name for name in self._tensors if not name.endswith(DERIVED_SUFFIXES))
        if left:
            more = f" and {len(left) - 3} more" if len(left) > 3 else ""
            raise ModelLoadError(f"the checkpoint has tensors that its architecture lacks: {', '.join(left[:3])}{more}")


def _dequantized(stored: torch.Tensor | GroupedWeight) -> torch.Tensor:
    return stored.dequantize() if isinstance(stored, GroupedWeight) else stored
