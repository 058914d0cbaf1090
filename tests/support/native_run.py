"""Runs something natively and prints, as JSON, how its kernels' bits compare with their programs:

    python native_run.py engine MODEL      vLLM compiled, one prompt
    python native_run.py training MODEL    the compiled training forward of transformers
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
TOKENS = list(range(3, 43))


def engine(name: str) -> tuple[Any, list[Any]]:
    from graphdiff.capture.models import resolve_model
    from graphdiff.capture.vllm import run, session
    from graphdiff.capture.vllm.request import Request
    from graphdiff.capture.vllm.versions import engine as private

    model, found = resolve_model(name), []
    request = Request(output="", target="native", stop=False, model=model.name, options={"run": True})
    with tempfile.TemporaryDirectory() as scratch, run._environment(scratch, False):
        session.begin(session.Session(request, found.append, lambda error: error and sys.exit(str(error))))
        from vllm import SamplingParams

        llm = private().start_engine(str(model.path))
        found[0].runs.clear()  # the warm-up's
        wanted = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False, temperature=0)
        llm.generate([{"prompt_token_ids": TOKENS}], wanted, use_tqdm=False)
    return found[0].code, found[0].runs


def training(name: str) -> tuple[Any, list[Any]]:
    import torch
    from torch._inductor.compile_fx import compile_fx

    from graphdiff.capture.inductor.native import watched_graph
    from graphdiff.capture.models import resolve_model
    from graphdiff.capture.transformers import load_model

    seen = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(watched_graph(graph, lambda: compile_fx(graph, inputs), True))
        return seen[0].compiled

    base = load_model(resolve_model(name), attn="sdpa", autocast=None).base_model
    torch.compile(base, backend=backend, fullgraph=True, dynamic=False)(
        input_ids=torch.tensor([TOKENS]), position_ids=torch.arange(5, 5 + len(TOKENS))[None], use_cache=False)
    return seen[0].code, seen[0].runs


def main(what: str, name: str) -> None:
    from cpp_bits import kernel_bits

    code, runs = {"engine": engine, "training": training}[what](name)
    assert [k.name for k in code.launches] == [r.name for r in runs], "one run of every launch, in order"
    found = [asdict(b) for kernel, run in zip(code.launches, runs) for b in kernel_bits(kernel, run.before, run.after)]
    print("BITS " + json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
