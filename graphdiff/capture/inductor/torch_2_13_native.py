"""torch 2.13: Inductor's code for this machine, forward and backward, of a function or of a graph that Dynamo traced.

Used by `torch_2_13` alone. With a backward, AOTAutograd is told to have it lowered at once, not when it first runs.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._guards import TracingContext, tracing
from torch._inductor import config as inductor_options
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from graphdiff.capture.inductor.code import CodeInput, FunctionOutput
from graphdiff.capture.inductor.native import BackwardCode, NativeCode, WatchedGraph
from graphdiff.capture.inductor.torch_2_13_cpp import NativeGraph, NativeRecorder, recording
from graphdiff.capture.inductor.torch_2_13_move import shapes_from_numbers
from graphdiff.capture.inductor.torch_2_13_trace import Traced, bound_inputs, name_of, origins_of, run_inductor, trace
from graphdiff.errors import GraphdiffError

SEED = 0


def native_code_for_function(
    fn: Callable[..., Any], inputs: Sequence[Any], config_patches: dict[str, Any], run: bool, training: bool
) -> NativeCode:
    """Code for this machine; see `native.native_code_for_function`."""
    traced = trace(fn, inputs, training)
    if shapes_from_numbers(traced.graph) is not None:
        raise GraphdiffError("sizes and numbers that depend on a tensor's numbers (nonzero, item) have no lowering for this machine",
                             where=name_of(fn), fix="give --target cuda:90, or make them arguments")
    recorder, context = NativeRecorder(watch=run), TracingContext(FakeTensorMode())
    options = {**config_patches, "force_disable_caches": True, "fx_graph_cache": False, "cpp_wrapper": False}
    ran = _Ran()
    with (
        torch.inference_mode(False), torch.set_grad_enabled(training), recording(recorder),
        inductor_options.patch(options), _backward_at_once(training),
    ):  # fmt: skip
        with tracing(context):
            compiled = run_inductor(traced.graph, list(traced.graph_inputs if training else traced.values))
        if run:
            ran = _run(compiled, traced, training)
    forward, backward = recorder.forward(), recorder.backward()
    if len(forward) != 1 or len(backward) > 1:
        raise GraphdiffError(
            f"Inductor wrote {len(forward)} graphs for one function",
            where=name_of(fn),
            fix="capture a part of the function that compiles to one graph",
        )
    first = context.fw_metadata.num_mutated_inp_runtime_indices if context.fw_metadata else 0
    origins = origins_of(traced.graph.graph)
    return NativeCode(
        code=forward[0].code,
        inputs=bound_inputs(fn, inputs, traced),
        outputs=[FunctionOutput("output", first + o.position) if o.kind == "output" else o for o in traced.outputs],
        sources=origins["sources"],
        modules=origins["modules"],
        results=[ran.results[o.position] for o in traced.outputs if o.kind == "output"] if run else [],
        runs=forward[0].runs,
        backward=_backward_code(backward[0]) if backward else None,
        tangents=ran.tangents,
        gradients=ran.gradients,
    )


def watched_graph(
    graph: torch.fx.GraphModule, compile_graph: Callable[[], Any], load: bool, watch: bool, backward: bool
) -> WatchedGraph:
    """See `native.watched_graph`."""
    recorder = NativeRecorder(load, watch)
    results = next(n for n in graph.graph.nodes if n.op == "output").args[0]
    origins = origins_of(graph.graph)  # the compiler may take the graph apart
    with (
        recording(recorder), inductor_options.patch(force_disable_caches=True, fx_graph_cache=False),
        _backward_at_once(backward),
    ):  # fmt: skip
        compiled = compile_graph()
    forward = recorder.forward()
    if len(forward) != 1 or (backward and len(recorder.backward()) != 1):
        error = GraphdiffError(
            f"Inductor wrote {len(recorder.graphs)} graphs for the model, where {2 if backward else 1} were expected",
            where=f"torch {torch.__version__}",
            fix="clear the compile caches, and leave graph partition off",
        )
        return WatchedGraph(compiled, error=error)
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context else None
    first = metadata.num_mutated_inp_runtime_indices if metadata else 0
    outputs = [FunctionOutput("output", first + i) for i, _ in enumerate(tree_leaves(results))]
    return WatchedGraph(
        compiled, forward[0].code, outputs, origins["sources"], origins["modules"], forward[0].runs,
        backward=_backward_code(recorder.backward()[0]) if backward else None)  # fmt: skip


@contextlib.contextmanager
def _backward_at_once(wanted: bool) -> Iterator[None]:
    with torch._functorch.config.patch(force_non_lazy_backward_lowering=True) if wanted else contextlib.nullcontext():
        yield


def _backward_code(graph: NativeGraph) -> BackwardCode:
    return BackwardCode(graph.code, [CodeInput(name=name, kind="tensor") for name in graph.input_names], graph.runs)


# ---- running it


@dataclass
class _Ran:
    results: list[Any] = field(default_factory=list)
    tangents: list[Any] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)


def _run(compiled: Callable[..., Any], traced: Traced, training: bool) -> _Ran:
    """Forward and, in training, backward on random gradients of the results."""
    given = [_fresh(v) for v in traced.values]
    if training:
        for value, original in zip(given, traced.graph_inputs, strict=True):
            if isinstance(original, torch.Tensor) and original.requires_grad:
                value.requires_grad_()
    results = list(compiled(*given))
    ends = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
    if not training or not ends:
        return _Ran(results)
    generator = torch.Generator().manual_seed(SEED)
    tangents = [torch.randn(r.shape, generator=generator).to(r.dtype) for r in ends]
    leaves = [v if isinstance(v, torch.Tensor) and v.requires_grad else None for v in given]
    found = iter(torch.autograd.grad(ends, [v for v in leaves if v is not None], tangents, allow_unused=True))
    gradients = [None if v is None else next(found) for v in leaves]
    return _Ran([r.detach() if isinstance(r, torch.Tensor) else r for r in results], tangents, gradients)


def _fresh(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def compile_by_inductor(graph: torch.fx.GraphModule, inputs: Sequence[Any], config_patches: dict[str, Any]) -> Any:
    """torch._inductor.compile_fx, the default backend's way in."""
    from torch._inductor.compile_fx import compile_fx

    with inductor_options.patch(config_patches):
        return compile_fx(graph, list(inputs))
