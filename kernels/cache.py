"""The paged KV cache: one tensor, block id first, and the two orders of keys and values inside a block."""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from kernels.backends import backend_for
from kernels.contract import Backend, CacheLayout, check_moves


@dataclass(frozen=True, slots=True, eq=False)
class KVCache:
    """Keys and values of ``num_blocks`` blocks, and the backend that reads and writes them.

    Inside a block lie, for each layer and each head, the keys of its B tokens and right behind them their values:

        storage [num_blocks, num_layers, num_kv_heads, 2, B * D]

    The last axis has one of two orders. Plain: keys and values both [B, D]. Packed, for CPU vectors whose 32-bit lanes
    each hold x = 4 / itemsize numbers that are multiplied and added together: keys [D / x, B, x], values [B / x, D, x].

    Attributes:
        scales: [2, num_layers, num_kv_heads] float32, what stored keys and values are multiplied by to give the real
            ones. Ones unless set; used only where ``layout.dtype`` is float8.
    """

    layout: CacheLayout
    storage: torch.Tensor
    scales: torch.Tensor
    backend: Backend

    @classmethod
    def allocate(
        cls,
        layout: CacheLayout,
        num_blocks: int,
        device: torch.device | str,
        *,
        pinned: bool = False,
        backend: Backend | None = None,
    ) -> KVCache:
        """Reserve memory, not yet set to anything.

        Args:
            pinned: page-locked CPU memory in the accelerator's order: a swap pool for a cache on the accelerator.
            backend: None takes the best one there is for the device and the layout.

        Raises:
            ValueError: the number of blocks is negative or the backend cannot work on this layout.
        """
        if num_blocks < 0:
            raise ValueError(f"num_blocks must be at least 0, not {num_blocks}")
        device = torch.device(device)
        backend = backend or backend_for("cuda" if pinned else device.type, layout)
        if not backend.supports(layout):
            raise ValueError(f"the {backend.name} backend does not support {layout}")
        shape = (num_blocks, layout.num_layers, layout.num_kv_heads, 2, layout.block_size * layout.head_dim)
        storage = torch.empty(shape, dtype=layout.dtype, device=device, pin_memory=pinned)
        if storage.device.type == "cpu" and not pinned:
            _advise_huge_pages(storage)
        scales = torch.ones((2, layout.num_layers, layout.num_kv_heads), device=device)
        return cls(layout, storage, scales, backend)

    @property
    def num_blocks(self) -> int:
        return self.storage.shape[0]

    @property
    def device(self) -> torch.device:
        return self.storage.device

    def keys(self, layer: int) -> torch.Tensor:
        """A view [num_blocks, Hkv, B, D / x, x] of one layer's keys; x is D where the order is plain."""
        width = self._lane_width() if self.backend.packed else self.layout.head_dim
        columns = self.layout.head_dim // width
        region = torch.unflatten(self.storage[:, layer, :, 0], -1, (columns, self.layout.block_size, width))
        return region.transpose(2, 3)

    def values(self, layer: int) -> torch.Tensor:
        """A view [num_blocks, Hkv, B / x, x, D] of one layer's values; x is 1 where the order is plain."""
        width = self._lane_width() if self.backend.packed else 1
        rows = self.layout.block_size // width
        region = torch.unflatten(self.storage[:, layer, :, 1], -1, (rows, self.layout.head_dim, width))
        return region.transpose(3, 4)

    def _lane_width(self) -> int:
        return 4 // self.layout.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Transfer:
    """Block moves under way between a device and a CPU pool. Until they are done, both sides' blocks are theirs."""

    event: torch.cuda.Event | None = None

    def done(self) -> bool:
        """Whether the moves have ended; never blocks."""
        return self.event is None or self.event.query()

    def wait(self) -> None:
        """Let work queued from now on run after the moves. Blocks the GPU's stream, not the caller."""
        if self.event is not None:
            self.event.wait()


def swap_blocks(source: KVCache, target: KVCache, sources: Sequence[int], targets: Sequence[int]) -> Transfer:
    """Copy block sources[i] of one cache to block targets[i] of the other, all layers.

    Between a GPU and a pinned pool the copies run on a stream of their own, after all work queued so far: call
    ``Transfer.wait`` before the blocks of either side are used. On the CPU they have ended on return.
    """
    if source.layout != target.layout or source.backend.packed != target.backend.packed:
        raise ValueError(f"both caches must have one layout and order: {source.layout} and {target.layout}")
    check_moves(sources, targets, source.num_blocks, target.num_blocks)
    devices = {source.device, target.device}
    if all(device.type == "cpu" for device in devices):
        _copy(source, target, sources, targets)
        return Transfer()
    device = next(device for device in devices if device.type != "cpu")
    stream = _copy_stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        _copy(source, target, sources, targets)
        return Transfer(stream.record_event())


def _copy(source: KVCache, target: KVCache, sources: Sequence[int], targets: Sequence[int]) -> None:
    for source_id, target_id in zip(sources, targets, strict=True):
        target.storage[target_id].copy_(source.storage[source_id], non_blocking=True)


def _advise_huge_pages(storage: torch.Tensor) -> None:
    """Ask Linux for large pages: blocks lie scattered, and each small page costs a look-up of its own."""
    advice = getattr(mmap, "MADV_HUGEPAGE", None)
    if advice is None:
        return
    start = -(-storage.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (storage.data_ptr() + storage.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if start < end:
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), advice)


@functools.cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)
