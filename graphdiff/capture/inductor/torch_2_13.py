"""Everything that graphdiff uses of the private API of torch 2.13 to get CUDA code out of Inductor with no GPU.

(With its parts `torch_2_13_*`.) Interface: `__all__`.
The way: move the Dynamo graph to a fake CUDA device (`moved_to_cuda`), hand it to `compile_fx` while Inductor
believes in that device (`fake_device`), and keep each graph's text where Inductor would load it as a module
(`Recorder`). With a backward it is otherwise, since autograd runs on no fake device: AOTAutograd traces on the CPU,
and the forward and backward graphs of aten ops are moved (`moved_aten`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._guards import TracingContext, tracing
from torch._inductor import config as inductor_options
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves

from graphdiff.capture.fx_sources import dotted_name, layer_position, model_position, module_paths, source_positions
from graphdiff.capture.inductor.code import CodeInput, FunctionOutput, OutputCode
from graphdiff.capture.inductor.device_guard import install_noop_cuda_guard
from graphdiff.capture.inductor.native import NativeCode, WatchedGraph
from graphdiff.capture.inductor.targets import Target
from graphdiff.capture.inductor.torch_2_13_cpp import NativeRecorder, recording
from graphdiff.capture.inductor.torch_2_13_device import Recorder, WrittenGraph, fake_device
from graphdiff.capture.inductor.torch_2_13_move import attentions_in, moved_aten, moved_to_cuda, refuse_constants
from graphdiff.capture.inductor.torch_2_13_options import option_types, rounding_options
from graphdiff.errors import GraphdiffError

__all__ = [
    "code_for_function", "code_for_graph", "compile_by_inductor", "native_code_for_function", "option_types",
    "rounding_options", "watched_graph",
]  # fmt: skip

# Nothing may depend on a timing, a cache or a second process: there is no device to time on.
NO_TIMING = {
    "force_disable_caches": True,
    "fx_graph_cache": False,
    "compile_threads": 1,
    "max_autotune": False,
    "max_autotune_gemm": False,
    "benchmark_combo_kernel": False,
    "triton.autotune_at_compile_time": False,
    "cpp_wrapper": False,
    "shape_padding": False,  # adds zeros to a matmul and cuts them off; moves no rounding
}
LONGEST_MESSAGE = 200


def code_for_graph(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], config_patches: dict[str, Any], target: Target
) -> list[OutputCode]:
    """Inference code of a Dynamo-level graph; see `cuda_code_for_graph`."""
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    inputs = [_unbound_input(name, value) for name, value in zip(names, example_inputs, strict=True)]
    graphs, metadata = _write_inference(graph, example_inputs, config_patches, target)
    first = metadata.num_mutated_inp_runtime_indices if metadata else 0
    count = len(metadata.output_info) if metadata else graphs[0].outputs
    outputs = [FunctionOutput("output", first + i) for i in range(count)]
    origins = _origins(graph.graph)
    return [OutputCode(g.text, target.name, inputs, outputs, g.kernel_sources, **origins) for g in graphs]


def code_for_function(
    fn: Callable[..., Any], inputs: Sequence[Any], target: Target, training: bool, config_patches: dict[str, Any]
) -> OutputCode:
    """Code of a torch callable; see `cuda_code_for_function`."""
    traced = _trace(fn, inputs, training)
    write = _write_training if training else _write_inference
    graphs, metadata = write(traced.graph, traced.graph_inputs, config_patches, target)
    forward = [g for g in graphs if not g.is_backward]
    backward = [g for g in graphs if g.is_backward]
    if len(forward) != 1:
        raise GraphdiffError(
            f"Inductor wrote {len(forward)} forward graphs for one function",
            where=_name(fn),
            fix="capture a part of the function that compiles to one graph",
        )
    first = metadata.num_mutated_inp_runtime_indices if metadata else 0
    origins = _origins(traced.graph.graph)
    return OutputCode(
        text=forward[0].text,
        target=target.name,
        inputs=_bound_inputs(fn, inputs, traced),
        outputs=[FunctionOutput("output", first + o.position) if o.kind == "output" else o for o in traced.outputs],
        kernel_sources=forward[0].kernel_sources,
        backward=_backward_code(backward[0], target, origins) if backward else None,
        **origins,
    )


def native_code_for_function(
    fn: Callable[..., Any], inputs: Sequence[Any], config_patches: dict[str, Any], run: bool
) -> NativeCode:
    """Code for this machine; see `native.native_code_for_function`."""
    traced = _trace(fn, inputs, False)
    recorder, context = NativeRecorder(run), TracingContext(FakeTensorMode())
    options = {**config_patches, "force_disable_caches": True, "fx_graph_cache": False, "cpp_wrapper": False}
    results: list[Any] = []
    with torch.inference_mode(False), torch.no_grad(), recording(recorder), inductor_options.patch(options):
        with tracing(context):
            compiled = _run_inductor(traced.graph, list(traced.values))
        if run:
            results = list(compiled(*[_fresh(v) for v in traced.values]))
    if len(recorder.codes) != 1:
        raise GraphdiffError(
            f"Inductor wrote {len(recorder.codes)} graphs for one function",
            where=_name(fn),
            fix="capture a part of the function that compiles to one graph",
        )
    first = context.fw_metadata.num_mutated_inp_runtime_indices if context.fw_metadata else 0
    origins = _origins(traced.graph.graph)
    return NativeCode(
        code=recorder.codes[0],
        inputs=_bound_inputs(fn, inputs, traced),
        outputs=[FunctionOutput("output", first + o.position) if o.kind == "output" else o for o in traced.outputs],
        sources=origins["sources"],
        modules=origins["modules"],
        results=[results[o.position] for o in traced.outputs if o.kind == "output"] if run else [],
        runs=recorder.runs,
    )


def watched_graph(graph: torch.fx.GraphModule, compile_graph: Callable[[], Any], run: bool) -> WatchedGraph:
    """See `native.watched_graph`."""
    recorder = NativeRecorder(run)
    with recording(recorder), inductor_options.patch(force_disable_caches=True, fx_graph_cache=False):
        compiled = compile_graph()
    forward = [code for code, backward in zip(recorder.codes, recorder.backward, strict=True) if not backward]
    if len(forward) != 1:
        error = GraphdiffError(
            f"Inductor wrote {len(forward)} graphs for the model, where one was expected",
            where=f"torch {torch.__version__}",
            fix="clear the compile caches, and leave graph partition off",
        )
        return WatchedGraph(compiled, error=error)
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context else None
    first = metadata.num_mutated_inp_runtime_indices if metadata else 0
    results = next(n for n in graph.graph.nodes if n.op == "output").args[0]
    outputs = [FunctionOutput("output", first + i) for i, _ in enumerate(tree_leaves(results))]
    origins = _origins(graph.graph)
    return WatchedGraph(compiled, forward[0], outputs, origins["sources"], origins["modules"], recorder.runs)


def _fresh(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


# ---- compiling under a device that is not there


def _write_inference(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], config_patches: dict[str, Any], target: Target
) -> tuple[list[WrittenGraph], Any]:
    """The graphs that Inductor writes, and AOTAutograd's metadata of the inference graph."""
    install_noop_cuda_guard()
    refuse_constants(graph)
    # Inference mode lets composite ops through to fake tensors, which then try the device.
    with torch.inference_mode(False), torch.no_grad():
        return _write_moved(*moved_to_cuda(graph, example_inputs), config_patches, target)


def _write_moved(
    graph: torch.fx.GraphModule, inputs: list[Any], mode: FakeTensorMode, config_patches: dict[str, Any], target: Target
) -> tuple[list[WrittenGraph], Any]:
    recorder, context = Recorder(), TracingContext(mode)
    with (
        fake_device(recorder, target),
        inductor_options.patch({**config_patches, **NO_TIMING}),
        tracing(context),
    ):
        _run_inductor(graph, inputs)
    return _written(recorder), context.fw_metadata


def _write_training(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], config_patches: dict[str, Any], target: Target
) -> tuple[list[WrittenGraph], Any]:
    """The forward and backward that Inductor writes, and AOTAutograd's metadata of the forward."""
    from torch._inductor.compile_fx import compile_fx_inner

    install_noop_cuda_guard()
    recorder, context, attentions = Recorder(), TracingContext(FakeTensorMode()), attentions_in(graph)

    def write(aten: torch.fx.GraphModule, aten_inputs: Sequence[Any], **options: Any) -> Callable[..., Any]:
        moved, inputs, mode = moved_aten(aten, aten_inputs, 0 if options.get("is_backward") else attentions)
        kept = {name: options[name] for name in ("is_backward", "static_input_idxs", "graph_id") if name in options}
        with fake_device(recorder, target), tracing(TracingContext(mode)):
            compile_fx_inner(moved, inputs, **kept)
        return _boxed(aten)

    with (
        torch.enable_grad(),
        inductor_options.patch({**config_patches, **NO_TIMING}),
        torch._functorch.config.patch(force_non_lazy_backward_lowering=True),
        tracing(context),
    ):
        _run_inductor(graph, list(example_inputs), inner_compile=write)
    return _written(recorder), context.fw_metadata


def _boxed(graph: torch.fx.GraphModule) -> Callable[..., Any]:
    """A graph as AOTAutograd calls compiled code: with one list."""

    def run(args: list[Any]) -> Any:
        return graph.forward(*args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _run_inductor(graph: torch.fx.GraphModule, inputs: list[Any], **options: Any) -> Callable[..., Any]:
    from torch._inductor.compile_fx import compile_fx

    try:
        return compile_fx(graph, inputs, **options)
    except GraphdiffError:
        raise
    except Exception as error:
        message = str(error).strip().splitlines() or [type(error).__name__]
        raise GraphdiffError(
            f"Inductor cannot write code for this graph: {message[0][:LONGEST_MESSAGE]}",
            where=f"torch {torch.__version__}",
            fix="see the traceback with --debug; an op that needs a real device cannot be captured without one",
        ) from error


def _written(recorder: Recorder) -> list[WrittenGraph]:
    if not recorder.graphs:
        raise GraphdiffError(
            "Inductor wrote no code for this graph", where="it computes nothing", fix="capture something that computes"
        )
    return recorder.graphs


def _origins(graph: torch.fx.Graph) -> dict[str, Any]:
    """Where the nodes of a Dynamo graph come from, as the fields of `OutputCode`."""
    return {
        "sources": source_positions(graph, model_position),
        "layer_sources": source_positions(graph, layer_position),
        "modules": module_paths(graph),
    }


# ---- tracing a function


@dataclass
class _Traced:
    """`values` are `graph_inputs` as they were before the function ran."""

    graph: torch.fx.GraphModule
    graph_inputs: list[Any]
    values: list[Any]
    outputs: list[FunctionOutput]


def _trace(fn: Callable[..., Any], inputs: Sequence[Any], training: bool) -> _Traced:
    """Dynamo's graph of `fn`, its real inputs, and which of its results `fn` returns; `fn` runs once, eagerly."""
    seen: list[tuple[torch.fx.GraphModule, list[Any], list[Any]]] = []
    results: list[Any] = []

    def keep(graph: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        before = [_kept_before(value) for value in example_inputs]
        seen.append((graph, list(example_inputs), before))

        def run(*args: Any) -> Any:
            results[:] = graph.forward(*args)
            return tuple(results)

        return run

    torch._dynamo.reset()
    by_numbers = torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True)
    try:
        with torch.set_grad_enabled(training), by_numbers:
            returned = torch.compile(fn, backend=keep, fullgraph=True, dynamic=False)(*inputs)
    except torch._dynamo.exc.Unsupported as error:
        raise GraphdiffError(
            "torch.compile cannot trace this function as one graph",
            where=_name(fn),
            fix=f"avoid the graph break: {str(error).splitlines()[0]}",
        ) from error
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = next((line.partition(": got ")[2] for line in lines if ": got " in line), lines[0])
        raise GraphdiffError(
            f"the function raises while it is traced{' with gradients' if training else ''}: {reason[:LONGEST_MESSAGE]}",
            where=_name(fn),
            fix="run it on its inputs first; with gradients it may not write to them",
        ) from error
    finally:
        torch._dynamo.reset()
    if len(seen) != 1:
        raise GraphdiffError(
            "this function computes nothing that torch.compile sees",
            where=_name(fn),
            fix="capture a function of tensors that returns what it computes",
        )
    graph, graph_inputs, before = seen[0]
    outputs = [_where_from(leaf, results, graph_inputs) for leaf in tree_leaves(returned)]
    values = [_value_before(value, kept) for value, kept in zip(graph_inputs, before, strict=True)]
    return _Traced(graph, graph_inputs, values, outputs)


def _kept_before(value: Any) -> Any:
    """What brings an input back if the function writes to it: its version and a copy; parameters are not copied."""
    if not isinstance(value, torch.Tensor) or isinstance(value, torch.nn.Parameter):
        return None
    return value._version, value.detach().clone()


def _value_before(value: Any, kept: Any) -> Any:
    return value if kept is None or value._version == kept[0] else kept[1]


def _where_from(leaf: Any, results: Sequence[Any], graph_inputs: Sequence[Any]) -> FunctionOutput:
    for kind, candidates in (("output", results), ("input", graph_inputs)):
        for position, candidate in enumerate(candidates):
            if candidate is leaf and isinstance(leaf, torch.Tensor):
                return FunctionOutput(kind, position)  # type: ignore[arg-type]
    return FunctionOutput("constant", value=leaf)


def _bound_inputs(fn: Callable[..., Any], inputs: Sequence[Any], traced: _Traced) -> list[CodeInput]:
    module = fn if isinstance(fn, torch.nn.Module) else getattr(fn, "__self__", None)
    named = {}
    if isinstance(module, torch.nn.Module):
        named = {id(t): name for name, t in (*module.named_parameters(), *module.named_buffers())}
    places = {id(leaf): i for i, leaf in enumerate(tree_leaves(inputs)) if isinstance(leaf, torch.Tensor)}
    placeholders = [node for node in traced.graph.graph.nodes if node.op == "placeholder"]
    bound = []
    for node, value, before in zip(placeholders, traced.graph_inputs, traced.values, strict=True):
        source = getattr(getattr(node, "_dynamo_source", None), "name", "")
        is_parameter = isinstance(value, torch.nn.Parameter) or "_buffers[" in source
        bound.append(
            CodeInput(
                name=node.name,
                kind="tensor" if isinstance(value, torch.Tensor) else "size",
                value=before,
                source=source,
                argument=places.get(id(value)),
                parameter=named.get(id(value)) or (dotted_name(source) if is_parameter else None),
            )
        )
    return bound


def _unbound_input(name: str, value: Any) -> CodeInput:
    return CodeInput(name=name, kind="tensor" if isinstance(value, torch.Tensor) else "size")


def _backward_code(graph: WrittenGraph, target: Target, origins: dict[str, Any]) -> OutputCode:
    inputs = [CodeInput(name=name, kind="tensor") for name in graph.input_names]
    outputs = [FunctionOutput("output", i) for i in range(graph.outputs)]
    return OutputCode(graph.text, target.name, inputs, outputs, graph.kernel_sources, **origins)


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", type(fn).__name__)


def compile_by_inductor(graph: torch.fx.GraphModule, inputs: Sequence[Any], config_patches: dict[str, Any]) -> Any:
    """torch._inductor.compile_fx, the default backend's way in."""
    from torch._inductor.compile_fx import compile_fx

    with inductor_options.patch(config_patches):
        return compile_fx(graph, list(inputs))
