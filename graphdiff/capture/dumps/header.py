"""What a capture of a dump says about itself."""

from __future__ import annotations

from collections.abc import Sequence

from graphdiff.capture.dumps.graph import DumpedGraph
from graphdiff.capture.function import Recorded
from graphdiff.store import CaptureInfo, KernelInfo, ModelInfo, ProbeTokens


def dumps_header(graph: DumpedGraph, recorded: Recorded, tokens: int, seed: int, integers: Sequence[str] = (), missing: Sequence[str] = (),
                 ) -> CaptureInfo:
    """Only what the dump tells; what it does not is said.

    integers: names of its integer inputs, whose numbers are made up. missing: what could not be read of the folder.
    """
    name = " ".join(part for part in (graph.function, graph.name) if part) or "a graph without a name"
    missing = ["weights and inputs", *recorded.not_captured, *missing]
    if not graph.torch:
        missing.append("the version of torch")
    if not graph.dynamo and not graph.post_grad:
        missing.append("where ops were written (log post_grad_graphs too, or use TORCH_TRACE)")
    symbolic = any("symbolic sizes" in n for n in recorded.notes)
    return CaptureInfo(
        kind="dumps", model=ModelInfo(name=name, config={"integer_inputs": list(integers)} if integers else {}),
        versions={"torch": graph.torch} if graph.torch else {},
        mode=recorded.mode, target=recorded.target, shapes="dynamic" if symbolic else "", probe=ProbeTokens(tokens=list(range(tokens)) if symbolic else [], seed=seed),
        outputs=[o.name for o in recorded.program.outputs], not_captured=missing, notes=list(recorded.notes),
        kernels=[KernelInfo(name=k, code="output_code", kind=graph.language) for k in graph.kernels])
