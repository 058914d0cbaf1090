"""Log-probs of the real vLLM on this CPU against transformers, with and without a patch for exactly that schedule.

Usage: python benchmarks/engine_logprobs.py [MODEL ...] [--folder DIR]     (default: qwen3-tiny qwen2-tiny)

Per model: the engine as it runs here by default (compiled, Inductor's C++) gives the log-probs of random prompts; its
schedule is captured (`--target native`), a patch is written for it, and the same prompts are scored by transformers
under every set of parts. Printed: mean, mean abs, and max abs of engine - trainer, over all prompt tokens but the first
of each prompt. A few minutes and 2 GB a model.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROMPTS, LENGTH = 64, 64
SETS = {
    "nothing": (),
    "RoPE": ("rope",),
    "SwiGLU": ("swiglu",),
    "residual RMSNorm": ("residual_rmsnorm",),
    "RoPE + SwiGLU": ("rope", "swiglu"),
    "RoPE + residual RMSNorm": ("rope", "residual_rmsnorm"),
    "SwiGLU + residual RMSNorm": ("swiglu", "residual_rmsnorm"),
    "all three": ("rope", "swiglu", "residual_rmsnorm"),
}


def prompts(vocabulary: int) -> list[list[int]]:
    import numpy as np

    return np.random.default_rng(0).integers(3, vocabulary, (PROMPTS, LENGTH)).tolist()


def engine(path: str, out: str) -> None:
    """In a process of its own: vLLM scores the prompts."""
    from vllm import LLM, SamplingParams

    config = json.loads((Path(path) / "config.json").read_text())
    llm = LLM(path, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=2 * LENGTH, max_num_batched_tokens=PROMPTS * LENGTH // 4,
              max_num_seqs=16, seed=0, enable_prefix_caching=False)
    sampling = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0, detokenize=False)
    given = prompts(config["vocab_size"])
    answers = llm.generate([{"prompt_token_ids": ids} for ids in given], sampling, use_tqdm=False)
    Path(out).write_text(json.dumps([[entry[token].logprob for entry, token in zip(answer.prompt_logprobs[1:], ids[1:], strict=True)]
                                     for answer, ids in zip(answers, given, strict=True)]))


def trainer(model, given):
    """log-prob of every prompt token but the first. Prompts one by one would be the same numbers, slower."""
    import torch

    with torch.no_grad():
        ids = torch.tensor(given)
        logits = torch.cat([model(input_ids=part, use_cache=False).logits.float() for part in ids.split(16)])
        return logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None]).squeeze(-1)


def measure(name: str, folder: Path) -> None:
    import torch

    from graphdiff import pipeline
    from graphdiff.capture.models import resolve_model
    from graphdiff.capture.transformers import load_model

    reference = resolve_model(name)
    scores = folder / f"{name}.logprobs.json"
    if not scores.exists():
        environment = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "ERROR"}
        subprocess.run([sys.executable, __file__, "--engine", str(reference.path), str(scores)], check=True, env=environment)
    captures = [folder / f"{name}.{side}.capture" for side in ("engine", "training")]
    if not captures[0].exists():
        pipeline.capture_vllm(name, captures[0], target="native")
    if not captures[1].exists():
        pipeline.capture_transformers(name, captures[1])
    package = folder / f"{name.replace('-', '_')}_native"
    plan, _ = pipeline.patch(captures[0], captures[1], package)
    for left in plan.uncovered:
        print(f"not aligned: {', '.join(left.values)}: {left.reason}")
    sys.path.insert(0, str(folder))
    patch = importlib.import_module(package.name)
    wanted = torch.tensor(json.loads(scores.read_text()))
    given = prompts(reference.config["vocab_size"])
    model = load_model(reference, attn="sdpa", autocast=None).eval()
    print(f"{name}: engine - trainer over {wanted.numel()} tokens\n{'patched':28} {'mean':>10} {'mean abs':>10} {'max':>8}", flush=True)
    for title, parts in SETS.items():
        if parts:
            switches = {p: p in parts for p in ("rope", "swiglu", "residual_rmsnorm")}
            with patch.apply(model, **switches):
                found = trainer(model, given)
        else:
            found = trainer(model, given)
        apart = wanted - found
        print(f"{title:28} {apart.mean():10.5f} {apart.abs().mean():10.5f} {apart.abs().max():8.4f}", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--engine"]:
        engine(*sys.argv[2:4])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["qwen3-tiny", "qwen2-tiny"])
    parser.add_argument("--folder", type=Path, help="keep the engine's log-probs and captures here")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (given.folder or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        for name in given.models:
            measure(name, folder)


if __name__ == "__main__":
    main()
