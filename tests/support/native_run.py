"""Runs something natively and prints, as JSON, how its kernels' bits compare with their programs:

    python native_run.py engine MODEL      vLLM compiled, one prompt
    python native_run.py engine-pieces MODEL    vLLM in VLLM_COMPILE, one prompt
    python native_run.py eager-engine MODEL    vLLM with enforce_eager, one prompt, op by op
    python native_run.py training MODEL    the compiled training of transformers, forward and backward (attention sdpa)
    python native_run.py eager-attention MODEL    the same with eager attention, whose backward is loops and matmuls
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
TOKENS = list(range(3, 43))


def started(name: str, mode: str, use: Callable[[Any], None], read: Callable[[Any], Any]) -> Any:
    """Start the engine, let `use` see its capture, run one prompt, and `read` the capture while the engine stands."""
    from graphdiff.capture.models import resolve_model
    from graphdiff.capture.vllm import run, session
    from graphdiff.capture.vllm.request import Request
    from graphdiff.capture.vllm.versions import engine as private

    model, found = resolve_model(name), []
    request = Request(output="", target="native", mode=mode, stop=False, model=model.name, options={"run": True})
    with tempfile.TemporaryDirectory() as scratch, run._environment(scratch, False):
        session.begin(session.Session(request, found.append, lambda error: error and sys.exit(str(error))))
        from vllm import SamplingParams

        llm = private().start_engine(str(model.path))
        use(found[0])  # after the warm-up
        wanted = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False, temperature=0)
        llm.generate([{"prompt_token_ids": TOKENS}], wanted, use_tqdm=False)
        return read(found[0])


def engine(name: str) -> dict[str, tuple[Any, list[Any]]]:
    return started(name, "compiled", lambda raw: raw.runs.clear(), lambda raw: {"forward": (raw.code, raw.runs)})


def engine_pieces(name: str) -> dict[str, tuple[Any, list[Any]]]:
    def forget(raw: Any) -> None:
        for piece in raw.pieces.values():
            piece.runs.clear()

    return started(name, "vllm_compile", forget, lambda raw: {"forward " + n: (p.code, p.runs) for n, p in raw.pieces.items()})


def eager_engine(name: str) -> dict[str, Any]:
    """Every op of the running engine alone, and the whole captured program with the engine's matmuls and attention."""
    import numpy as np
    from cpp_bits import differing, torch_arithmetic
    from eager_bits import ANCHORS, EachOp

    from graphdiff.capture.vllm.native_ops import eager_rules
    from graphdiff.capture.vllm.native_program import native_program
    from graphdiff.program import Evaluation, Options

    seen, results = [], []

    def watch(raw: Any) -> None:
        mode = EachOp(eager_rules(raw))
        seen.extend((mode, native_program(raw, TOKENS, list(range(len(TOKENS))))))
        raw.module.register_forward_pre_hook(lambda module, args: mode.__enter__() and None)
        raw.module.register_forward_hook(lambda module, args, out: (mode.__exit__(None, None, None), results.append(out.detach().clone()), None)[-1])

    def whole(raw: Any) -> dict[str, Any]:
        mode, (program, bits, notes) = seen
        ops, anchors = [asdict(b) for b in mode.found], mode.anchors
        assert not notes, notes
        places = [i for i, n in enumerate(program.nodes) if n.op in ANCHORS]
        assert len(places) == len(anchors), "the captured program has the running engine's anchors, in order"
        pins = {}
        for i, real in zip(places, anchors):
            shape = program.nodes[i].shape  # attention: heads first
            pins[i] = real if program.nodes[i].op == "mm" else real.reshape(shape[1], shape[0], shape[2]).transpose(1, 0, 2)
        evaluation = Evaluation(program, bits, Options(arithmetic=torch_arithmetic(), pins=pins))
        predicted, real = evaluation.output(0).astype(np.float32), results[0].float().numpy()
        count, worst, _ = differing(predicted, real, "bfloat16")
        kernels = sorted({program.site(i).kernel for i, n in enumerate(program.nodes) if n.op not in ("leaf", "const")})
        return {"ops": ops, "kernels": kernels, "hidden": {"elements": real.size, "differing": count, "worst": worst}}

    return started(name, "eager", watch, whole)


def training(name: str, attn: str = "sdpa") -> dict[str, tuple[Any, list[Any]]]:
    """One thread: what several add to one element, as the embedding's backward does, comes in any order else."""
    import torch
    from torch._inductor.compile_fx import compile_fx

    from graphdiff.capture.inductor.native import watched_graph
    from graphdiff.capture.models import resolve_model
    from graphdiff.capture.transformers import load_model

    seen = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(watched_graph(graph, lambda: compile_fx(graph, inputs), watch=True, backward=True))
        return seen[0].compiled

    torch.set_num_threads(1)
    base = load_model(resolve_model(name), attn=attn, autocast=None).base_model
    hidden = torch.compile(base, backend=backend, fullgraph=True, dynamic=False)(
        input_ids=torch.tensor([TOKENS]), position_ids=torch.arange(5, 5 + len(TOKENS))[None], use_cache=False).last_hidden_state
    hidden.backward(torch.randn(hidden.shape, generator=torch.Generator().manual_seed(0)).to(hidden.dtype))
    if seen[0].error is not None:
        raise seen[0].error
    return {"forward": (seen[0].code, seen[0].runs), "backward": (seen[0].backward.code, seen[0].backward.runs)}


def main(what: str, name: str) -> None:
    from cpp_bits import kernel_bits

    if what == "eager-engine":
        print("BITS " + json.dumps(eager_engine(name)))
        return
    made = {"engine": engine, "engine-pieces": engine_pieces, "training": training, "eager-attention": lambda name: training(name, "eager")}[what](name)
    found = []
    for direction, (code, runs) in made.items():
        assert [k.name for k in code.launches] == [r.name for r in runs], "one run of every launch, in order"
        found += [{**asdict(b), "direction": direction}
                  for kernel, run in zip(code.launches, runs) for b in kernel_bits(kernel, run.before, run.after)]
    print("BITS " + json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
