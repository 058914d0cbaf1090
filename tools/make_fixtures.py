"""Real captures kept in the repository: `make fixtures`.

The paper's four models at their real widths, two layers, synthetic weights: what vLLM compiles for cuda:90 and the
eager training forward. Written to fixtures/cuda-90/MODEL/{vllm,transformers}.capture; used by tests, and by anyone who
has no engine at hand. Equal code and versions give equal bytes.

Usage: python tools/make_fixtures.py [MODEL ...]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

MODELS = ("r1-distill-qwen-1.5b", "qwen3-1.7b", "qwen3-4b-base", "qwen3-8b-base")
TARGET = "cuda:90"
TOKENS = 4
"""Few: the numbers of every anchor are kept, and widths are real."""


def main(models: list[str]) -> None:
    from graphdiff import pipeline

    root = Path(__file__).resolve().parent.parent / "fixtures" / TARGET.replace(":", "-")
    for model in models or MODELS:
        folder = root / model
        folder.mkdir(parents=True, exist_ok=True)
        start = time.perf_counter()
        pipeline.capture_transformers(model, folder / "transformers.capture", tokens=TOKENS)
        pipeline.capture_vllm(model, folder / "vllm.capture", target=TARGET, tokens=TOKENS)
        for status in folder.glob("*.status.json"):
            status.unlink()
        sizes = ", ".join(f"{f.name} {f.stat().st_size / 2**20:.1f} MiB" for f in sorted(folder.glob("*.capture")))
        print(f"{model}: {sizes}, {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
