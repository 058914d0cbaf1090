"""Everything that graphdiff uses of the private API of torch 2.13 to get CUDA code out of Inductor with no GPU.

Interface: `code_for_graph`, `code_for_function`, `inductor_config`. The way: move the Dynamo graph to a fake CUDA
device (`moved_to_cuda`), hand it to `compile_fx` while Inductor believes in that device (`_fake_device`), and keep
each graph's text at the point where Inductor would load it as a module (`_Recorder`).
"""

import contextlib
import copy
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch
from torch._dynamo import device_interface
from torch._guards import TracingContext, detect_fake_mode, tracing
from torch._inductor import config as inductor_options
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_leaves

from graphdiff.capture.fx_sources import dotted_name, module_paths, source_positions
from graphdiff.capture.inductor.code import CodeInput, FunctionOutput, OutputCode
from graphdiff.capture.inductor.device_guard import install_noop_cuda_guard
from graphdiff.capture.inductor.targets import Target
from graphdiff.errors import GraphdiffError

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
}


@dataclass
class _Graph:
    """What Inductor wrote for one AOT graph."""

    text: str
    is_backward: bool
    input_names: list[str]
    outputs: int
    kernel_sources: dict[str, list[str]]


@dataclass
class _Recorder:
    """Collects the graphs that Inductor writes while it believes in a CUDA device."""

    graphs: list[_Graph] = field(default_factory=list)
    kernel_sources: dict[str, list[str]] = field(default_factory=dict)

    def take(self, lowering: Any) -> types.ModuleType:
        """In place of loading the written module: keep its text, return a module that cannot run."""
        self.kernel_sources = {}
        written, _ = lowering.codegen()
        self.graphs.append(
            _Graph(
                text=written.value,
                is_backward=bool(lowering.is_backward),
                input_names=list(lowering.graph_input_names),
                outputs=len(lowering.graph_outputs),
                kernel_sources=self.kernel_sources,
            )
        )
        module = types.ModuleType("graphdiff_output_code")
        module.__file__ = "/dev/null"
        module.__dict__.update(call=_never_run, key="", cache_key="", cache_path="/dev/null", value=written.value)
        return module


def code_for_graph(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], config_patches: dict[str, Any], target: Target
) -> list[OutputCode]:
    """Inference code of a Dynamo-level graph; see `cuda_code_for_graph`."""
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    inputs = [_unbound_input(name, value) for name, value in zip(names, example_inputs, strict=True)]
    with torch.no_grad():
        graphs, metadata = _compile(graph, example_inputs, config_patches, target)
    sources, modules = source_positions(graph.graph), module_paths(graph.graph)
    first = metadata.num_mutated_inp_runtime_indices if metadata else 0
    count = len(metadata.output_info) if metadata else graphs[0].outputs
    outputs = [FunctionOutput("output", first + i) for i in range(count)]
    return [
        OutputCode(g.text, target.name, inputs, outputs, g.kernel_sources, sources, modules)
        for g in graphs
    ]  # fmt: skip


def code_for_function(
    fn: Callable[..., Any], inputs: Sequence[Any], target: Target, training: bool, config_patches: dict[str, Any]
) -> OutputCode:
    """Code of a torch callable; see `cuda_code_for_function`."""
    traced = _trace(fn, inputs, training)
    with torch.set_grad_enabled(training):
        graphs, metadata = _compile(traced.graph, traced.graph_inputs, config_patches, target)
    forward = [g for g in graphs if not g.is_backward]
    backward = [g for g in graphs if g.is_backward]
    if len(forward) != 1:
        raise GraphdiffError(f"Inductor wrote {len(forward)} forward graphs for one function", where=_name(fn))
    first = metadata.num_mutated_inp_runtime_indices if metadata else 0
    outputs = [
        FunctionOutput("output", first + out.position) if out.kind == "output" else out for out in traced.outputs
    ]
    nodes = traced.graph.graph
    sources, modules = source_positions(nodes), module_paths(nodes)
    return OutputCode(
        text=forward[0].text,
        target=target.name,
        inputs=_bound_inputs(fn, inputs, traced),
        outputs=outputs,
        kernel_sources=forward[0].kernel_sources,
        sources=sources,
        modules=modules,
        backward=_backward_code(backward[0], target, sources, modules) if backward else None,
    )


def moved_to_cuda(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any]
) -> tuple[torch.fx.GraphModule, list[Any], FakeTensorMode]:
    """A copy of a CPU graph that stands on CUDA, its inputs as fake CUDA tensors, and their fake mode.

    No shapes are propagated: AOTAutograd traces the graph anew from its inputs.
    """
    device = torch.device("cuda", 0)
    mode = detect_fake_mode(list(example_inputs))
    mode = FakeTensorMode(shape_env=mode.shape_env if mode else None, allow_non_fake_inputs=True)
    moved = copy.deepcopy(graph)
    with mode:
        inputs = [_moved_tensor(v, device) if isinstance(v, torch.Tensor) else v for v in example_inputs]
    for module in moved.modules():
        if isinstance(module, torch.fx.GraphModule):
            _move_nodes(module, device)
    placeholders = (node for node in moved.graph.nodes if node.op == "placeholder")
    for node, value in zip(placeholders, inputs, strict=True):
        node.meta["example_value"] = value
        node.meta.pop("val", None)
    return moved, inputs, mode


# ---- compiling under a device that is not there


def _compile(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], config_patches: dict[str, Any], target: Target
) -> tuple[list[_Graph], Any]:
    """The graphs that Inductor writes, and AOTAutograd's metadata of the forward."""
    install_noop_cuda_guard()
    _refuse_constants(graph)
    moved, inputs, mode = moved_to_cuda(graph, example_inputs)
    recorder, context = _Recorder(), TracingContext(mode)
    options = {**config_patches, **NO_TIMING}
    with (
        _fake_device(recorder, target),
        inductor_options.patch(options),
        torch._functorch.config.patch(force_non_lazy_backward_lowering=True),
        tracing(context),
    ):
        _run_inductor(moved, inputs)
    if not recorder.graphs:
        raise GraphdiffError(
            "Inductor wrote no code for this graph", where="it computes nothing", fix="capture something that computes"
        )
    return recorder.graphs, context.fw_metadata


def _run_inductor(graph: torch.fx.GraphModule, inputs: list[Any]) -> None:
    from torch._inductor.compile_fx import compile_fx

    try:
        compile_fx(graph, inputs)
    except GraphdiffError:
        raise
    except Exception as error:
        message = str(error).strip().splitlines() or [type(error).__name__]
        raise GraphdiffError(
            f"Inductor cannot write CUDA code for this graph: {message[0]}",
            where=f"torch {torch.__version__}",
            fix="see the traceback with --debug; an op that needs a real device cannot be captured without one",
        ) from error


@contextlib.contextmanager
def _fake_device(recorder: _Recorder, target: Target) -> Iterator[None]:
    """Inductor believes in one CUDA device of kind `target`; its text goes to `recorder`."""
    from torch._inductor.codegen.triton import TritonScheduling
    from torch._inductor.fx_passes import joint_graph, misc_patterns
    from torch._inductor.graph import GraphLowering
    from triton.runtime import driver

    device_interface.get_registered_device_interfaces()
    interface = _interface(target)
    define_kernel = TritonScheduling.define_kernel
    deduce_value = joint_graph.UniformValueConstantFolder._deduce_value

    def recording_define_kernel(self: Any, source: str, schedule: Any, kernel: Any) -> str:
        name = define_kernel(self, source, schedule, kernel)
        recorder.kernel_sources.setdefault(name, _dynamo_nodes(schedule))
        return name

    def deduce_on_cpu(self: Any, node: Any) -> Any:
        """A constant that is folded is made for real, which no fake device can do."""
        if node.op != "call_function" or getattr(node.kwargs.get("device"), "type", "") != "cuda":
            return deduce_value(self, node)
        kwargs = node.kwargs
        node.kwargs = {**kwargs, "device": torch.device("cpu")}
        try:
            return deduce_value(self, node)
        finally:
            node.kwargs = kwargs

    properties = types.SimpleNamespace(**{**vars(target), "name": target.device_name})
    with contextlib.ExitStack() as stack:
        stack.callback(_forget_device)
        for patch in (
            mock.patch.dict(device_interface.device_interfaces, {"cuda": interface, "cuda:0": interface}),
            mock.patch.object(torch.cuda, "get_device_properties", lambda device=None: properties),
            mock.patch.object(torch.cuda, "get_device_capability", lambda device=None: (target.major, target.minor)),
            mock.patch.object(torch.cuda, "current_device", lambda: 0),
            mock.patch.object(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True),
            mock.patch.object(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
            mock.patch.object(torch.cuda, "device_count", lambda: 1),
            mock.patch.object(driver, "_active", _TritonDriver(target)),
            # Two patterns about randperm, whose registration makes a real tensor on the device.
            mock.patch.object(misc_patterns, "_misc_patterns_init", lambda input_device=None: None),
            mock.patch.object(joint_graph.UniformValueConstantFolder, "_deduce_value", deduce_on_cpu),
            mock.patch.object(TritonScheduling, "define_kernel", recording_define_kernel),
            mock.patch.object(GraphLowering, "_compile_to_module", lambda lowering: recorder.take(lowering)),
        ):
            stack.enter_context(patch)
        _forget_device()
        yield


def _interface(target: Target) -> type:
    """The device interface that Inductor asks about CUDA."""
    properties = types.SimpleNamespace(**{**vars(target), "name": target.device_name})
    answers: dict[str, Any] = {
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "device_count": lambda: 1,
        "synchronize": lambda *args: None,
        "get_device_properties": lambda device=None: properties,
        "get_raw_stream": lambda index=0: 0,
        "exchange_device": lambda device: 0,
        "maybe_exchange_device": lambda device: 0,
        "is_available": lambda: True,
        "is_bf16_supported": lambda including_emulation=False: True,
        "get_compute_capability": lambda device=None: target.capability,
        "is_triton_capable": lambda device=None: True,
        "raise_if_triton_unavailable": lambda device=None: None,
    }
    worker = {name: staticmethod(answers[name]) for name in ("set_device", "current_device", "get_device_properties")}
    members = {name: staticmethod(answer) for name, answer in answers.items()}
    members["Worker"] = type("Worker", (), worker)
    return type("FakeCudaInterface", (device_interface.CudaInterface,), members)


class _TritonDriver:
    """The driver that Triton's code generation asks for its target."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.target.capability, self.target.warp_size)

    def get_current_device(self) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)


def _forget_device() -> None:
    """Clear what torch remembers about devices, so that neither side sees the other's answers."""
    import torch.utils._triton as triton_support
    from torch._inductor.runtime.hints import DeviceProperties

    remembered = (
        triton_support.has_triton,
        triton_support.triton_backend,
        triton_support.triton_hash_with_backend,
        triton_support._device_supports_tma,
        DeviceProperties.create,
    )
    for function in remembered:
        clear = getattr(getattr(function, "__func__", function), "cache_clear", None)
        if clear is not None:
            clear()


def _never_run(*args: Any, **kwargs: Any) -> None:
    raise AssertionError("code for a device that is not there was called")


def _dynamo_nodes(schedule: Any) -> list[str]:
    """The Dynamo nodes that a kernel computes, in graph order; also of a combo kernel, which keeps them one deeper."""
    parts = [part for node in schedule for part in (node.get_nodes() if hasattr(node, "get_nodes") else ())]
    origins = {o for part in parts if part.node is not None for o in part.node.origins if o.op == "call_function"}
    place = {node: i for graph in {o.graph for o in origins} for i, node in enumerate(graph.nodes)}
    found = [o.meta["from_node"][0].name for o in sorted(origins, key=lambda o: place[o]) if o.meta.get("from_node")]
    return list(dict.fromkeys(found))


# ---- moving a graph


def _moved_tensor(value: torch.Tensor, device: torch.device) -> torch.Tensor:
    moved = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
    return moved.requires_grad_(value.requires_grad) if value.requires_grad else moved


def _move_nodes(module: torch.fx.GraphModule, device: torch.device) -> None:
    """Rewrite what a graph says about devices: arguments, `.to`, autocast, and factories that say nothing."""
    literals = {torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor}
    factories = _device_constructors() - literals
    for node in module.graph.nodes:
        if node.op not in ("call_function", "call_method"):
            continue
        if node.target in literals:
            continue  # made for real while tracing; a scalar on the CPU mixes with CUDA tensors
        if node.target is torch.amp.autocast_mode._enter_autocast:
            node.args = ("cuda" if node.args[0] == "cpu" else node.args[0], *node.args[1:])
            continue
        node.args = tuple(_moved_device(a, device) for a in node.args)
        node.kwargs = {key: _moved_device(value, device) for key, value in node.kwargs.items()}
        if node.op == "call_function" and node.target in factories and node.kwargs.get("device") is None:
            node.kwargs = {**node.kwargs, "device": device}
        if node.target is torch.nn.functional.scaled_dot_product_attention:
            node.target = _attention_on_cuda
        if node.op == "call_method" and node.target == "cpu":
            node.target = "cuda"
    module.recompile()


def _attention_on_cuda(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """`scaled_dot_product_attention` as CUDA runs it, as one op; a torch with no CUDA would write it out instead."""
    if enable_gqa:
        repeat = query.size(-3) // key.size(-3)
        key, value = key.repeat_interleave(repeat, -3), value.repeat_interleave(repeat, -3)
    if attn_mask is None and query.dtype in (torch.bfloat16, torch.float16):
        return torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale
        )[0]
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, float("-inf"))
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*query.shape[:-1], key.size(-2))
    return torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, False, dropout_p, is_causal, scale=scale
    )[0]


def _moved_device(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.device) and value.type == "cpu":
        return device
    return device if isinstance(value, str) and value == "cpu" else value


def _refuse_constants(graph: torch.fx.GraphModule) -> None:
    """A tensor stored in the graph itself would stay on the CPU, beside inputs on CUDA."""
    for node in graph.graph.nodes:
        value = graph
        for part in str(node.target).split(".") if node.op == "get_attr" else ():
            value = getattr(value, part)
        if isinstance(value, torch.Tensor) and value.dim():
            raise GraphdiffError(
                f"the graph holds a constant tensor {node.target}", where=node.name, fix="pass it as an input"
            )


# ---- tracing a function


@dataclass
class _Traced:
    graph: torch.fx.GraphModule
    graph_inputs: list[Any]
    outputs: list[FunctionOutput]


def _trace(fn: Callable[..., Any], inputs: Sequence[Any], training: bool) -> _Traced:
    """Dynamo's graph of `fn`, its real inputs, and which of its results `fn` returns; `fn` runs once, eagerly."""
    seen: list[tuple[torch.fx.GraphModule, list[Any]]] = []
    results: list[Any] = []

    def keep(graph: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        seen.append((graph, list(example_inputs)))

        def run(*args: Any) -> Any:
            results[:] = graph.forward(*args)
            return tuple(results)

        return run

    torch._dynamo.reset()
    try:
        with torch.set_grad_enabled(training):
            returned = torch.compile(fn, backend=keep, fullgraph=True, dynamic=False)(*inputs)
    except torch._dynamo.exc.Unsupported as error:
        raise GraphdiffError(
            "torch.compile cannot trace this function as one graph",
            where=_name(fn),
            fix=f"avoid the graph break: {str(error).splitlines()[0]}",
        ) from error
    finally:
        torch._dynamo.reset()
    if len(seen) != 1:
        raise GraphdiffError("this function computes nothing that torch.compile sees", where=_name(fn))
    graph, graph_inputs = seen[0]
    return _Traced(graph, graph_inputs, [_where_from(leaf, results, graph_inputs) for leaf in tree_leaves(returned)])


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
    for node, value in zip(placeholders, traced.graph_inputs, strict=True):
        source = getattr(getattr(node, "_dynamo_source", None), "name", "")
        is_parameter = isinstance(value, torch.nn.Parameter) or "_buffers[" in source
        bound.append(
            CodeInput(
                name=node.name,
                kind="tensor" if isinstance(value, torch.Tensor) else "size",
                value=value,
                source=source,
                argument=places.get(id(value)),
                parameter=named.get(id(value)) or (dotted_name(source) if is_parameter else None),
            )
        )
    return bound


def _unbound_input(name: str, value: Any) -> CodeInput:
    return CodeInput(name=name, kind="tensor" if isinstance(value, torch.Tensor) else "size")


def _backward_code(graph: _Graph, target: Target, sources: dict, modules: dict) -> OutputCode:
    inputs = [CodeInput(name=name, kind="tensor") for name in graph.input_names]
    outputs = [FunctionOutput("output", i) for i in range(graph.outputs)]
    return OutputCode(graph.text, target.name, inputs, outputs, graph.kernel_sources, sources, modules)


def _name(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__qualname__", type(fn).__name__)
