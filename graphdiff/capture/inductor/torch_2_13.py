"""Everything that graphdiff uses of the private API of torch 2.13 to get CUDA code out of Inductor with no GPU.

(With its parts `torch_2_13_*`; this machine's code is `torch_2_13_native`'s.) Interface: `__all__`.
The way: move the Dynamo graph to a fake CUDA device (`moved_to_cuda`), hand it to `compile_fx` while Inductor
believes in that device (`fake_device`), and keep each graph's text where Inductor would load it as a module
(`Recorder`). With a backward it is otherwise, since autograd runs on no fake device: AOTAutograd traces on the CPU,
and the forward and backward graphs of aten ops are moved (`moved_aten`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._guards import TracingContext, tracing
from torch._inductor import config as inductor_options
from torch._subclasses.fake_tensor import FakeTensorMode

from graphdiff.capture.inductor.code import CodeInput, FunctionOutput, OutputCode
from graphdiff.capture.inductor.device_guard import install_noop_cuda_guard
from graphdiff.capture.inductor.targets import Target
from graphdiff.capture.inductor.torch_2_13_device import Recorder, WrittenGraph, fake_device
from graphdiff.capture.inductor.torch_2_13_move import attentions_in, moved_aten, moved_to_cuda, refuse_constants
from graphdiff.capture.inductor.torch_2_13_constants import constants_as_inputs
from graphdiff.capture.inductor.torch_2_13_native import compile_by_inductor, native_code_for_function, watched_graph
from graphdiff.capture.inductor.torch_2_13_options import option_types, rounding_options
from graphdiff.capture.inductor.torch_2_13_trace import bound_inputs, name_of, origins_of, run_inductor, trace
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
    origins = origins_of(graph.graph)
    return [OutputCode(g.text, target.name, inputs, outputs, g.kernel_sources, **origins) for g in graphs]


def code_for_function(
    fn: Callable[..., Any], inputs: Sequence[Any], target: Target, training: bool, config_patches: dict[str, Any]
) -> OutputCode:
    """Code of a torch callable; see `cuda_code_for_function`."""
    traced = constants_as_inputs(trace(fn, inputs, training))
    write = _write_training if training else _write_inference
    graphs, metadata = write(traced.graph, traced.graph_inputs, config_patches, target)
    forward = [g for g in graphs if not g.is_backward]
    backward = [g for g in graphs if g.is_backward]
    if len(forward) != 1:
        raise GraphdiffError(
            f"Inductor wrote {len(forward)} forward graphs for one function",
            where=name_of(fn),
            fix="capture a part of the function that compiles to one graph",
        )
    first = metadata.num_mutated_inp_runtime_indices if metadata else 0
    origins = origins_of(traced.graph.graph)
    return OutputCode(
        text=forward[0].text,
        target=target.name,
        inputs=bound_inputs(fn, inputs, traced),
        outputs=[FunctionOutput("output", first + o.position) if o.kind == "output" else o for o in traced.outputs],
        kernel_sources=forward[0].kernel_sources,
        backward=_backward_code(backward[0], target, origins) if backward else None,
        **origins,
    )


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
        run_inductor(graph, inputs)
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
        run_inductor(graph, list(example_inputs), inner_compile=write)
    return _written(recorder), context.fw_metadata


def _boxed(graph: torch.fx.GraphModule) -> Callable[..., Any]:
    """A graph as AOTAutograd calls compiled code: with one list."""

    def run(args: list[Any]) -> Any:
        return graph.forward(*args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _written(recorder: Recorder) -> list[WrittenGraph]:
    if not recorder.graphs:
        raise GraphdiffError(
            "Inductor wrote no code for this graph", where="it computes nothing", fix="capture something that computes"
        )
    return recorder.graphs


def _unbound_input(name: str, value: Any) -> CodeInput:
    return CodeInput(name=name, kind="tensor" if isinstance(value, torch.Tensor) else "size")


def _backward_code(graph: WrittenGraph, target: Target, origins: dict[str, Any]) -> OutputCode:
    inputs = [CodeInput(name=name, kind="tensor") for name in graph.input_names]
    outputs = [FunctionOutput("output", i) for i in range(graph.outputs)]
    return OutputCode(graph.text, target.name, inputs, outputs, graph.kernel_sources, **origins)
