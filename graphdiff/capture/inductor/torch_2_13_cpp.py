"""torch 2.13: what Inductor's C++ backend is about to write, as data. Used by `torch_2_13_native` alone.

The loop bodies are copied where a loop nest is written (`CppKernelProxy.codegen_functions`): there the backend has
already placed the casts of low formats (`legalize_lowp_fp_dtype` has changed the bodies). Loops are kept with the
kernel group that finalises them, groups where they are called.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch

from graphdiff.capture.inductor.native import KernelRun
from graphdiff.errors import GraphdiffError
from graphdiff.lower.inductor_cpp import Body, BodyNode, CppCode, CppKernel, Indirect, Loop


@dataclass
class NativeGraph:
    """One graph: its code, what `call` names its inputs, and what its kernels did if it ran."""

    code: CppCode
    is_backward: bool
    input_names: list[str]
    runs: list[KernelRun] = field(default_factory=list)


@dataclass
class NativeRecorder:
    """Collects the graphs that the C++ backend writes. `load`: let them be compiled, so that they can be called;
    `watch`: that, and keep what their kernels do."""

    load: bool = False
    watch: bool = False
    graphs: list[NativeGraph] = field(default_factory=list)
    launches: list[CppKernel] = field(default_factory=list)

    def forward(self) -> list[NativeGraph]:
        """Graphs that are no backward."""
        return [g for g in self.graphs if not g.is_backward]

    def backward(self) -> list[NativeGraph]:
        """Backward graphs."""
        return [g for g in self.graphs if g.is_backward]


@contextlib.contextmanager
def recording(recorder: NativeRecorder) -> Iterator[None]:
    """While this is open, Inductor's CPU code goes to `recorder` as well."""
    from torch._inductor.codegen.cpp import CppKernelProxy, KernelGroup, OuterLoopFusedSchedulerNode
    from torch._inductor.graph import GraphLowering

    write_loops, merge = CppKernelProxy.codegen_functions, OuterLoopFusedSchedulerNode.merge_outer_fusion_kernels
    finalize, call = KernelGroup.finalize_kernel, KernelGroup.call_kernel
    to_module = GraphLowering._compile_to_module
    codegen = GraphLowering.codegen

    def codegen_functions(self: Any, functions: Sequence[Any], sizes: Sequence[Any]) -> Any:
        self.graphdiff_loops = [_loop(functions, sizes) if all(map(_scheduler_node, functions)) else None]
        return write_loops(self, functions, sizes)

    def merge_outer_fusion_kernels(self: Any, proxies: list[Any]) -> Any:
        loops = [loop for proxy in proxies for loop in proxy.graphdiff_loops]
        merged = merge(self, proxies)
        merged.graphdiff_loops = loops
        return merged

    def finalize_kernel(self: Any, kernel: Any, nodes: Any) -> Any:
        self.graphdiff_loops = [*getattr(self, "graphdiff_loops", ()), *kernel.graphdiff_loops]
        return finalize(self, kernel, nodes)

    def call_kernel(self: Any, wrapper: Any, name: str) -> Any:
        recorder.launches.append(_kernel(self, name))
        return call(self, wrapper, name)

    def written(self: Any) -> Any:
        recorder.launches = []
        result = codegen(self)
        code = CppCode(result[0].value, list(recorder.launches))
        recorder.graphs.append(NativeGraph(code, bool(self.is_backward), list(self.graph_input_names)))
        return result

    def compile_to_module(self: Any) -> Any:
        if recorder.load or recorder.watch:
            module = to_module(self)
            if recorder.watch:
                _watch_kernels(module, recorder.graphs[-1].runs)
            return module
        from graphdiff.capture.inductor.torch_2_13_device import unloaded_module

        text, _ = self.codegen()
        return unloaded_module(text.value)

    with contextlib.ExitStack() as stack:
        for owner, name, new in (
            (CppKernelProxy, "codegen_functions", codegen_functions),
            (OuterLoopFusedSchedulerNode, "merge_outer_fusion_kernels", merge_outer_fusion_kernels),
            (KernelGroup, "finalize_kernel", finalize_kernel),
            (KernelGroup, "call_kernel", call_kernel),
            (GraphLowering, "codegen", written),
            (GraphLowering, "_compile_to_module", compile_to_module),
        ):
            stack.enter_context(mock.patch.object(owner, name, new))
        yield


def _watch_kernels(module: Any, runs: list[KernelRun]) -> None:
    """Keep what the kernels of a loaded module get and make."""

    def watched(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            before = _copied(args)
            result = kernel(*args)
            runs.append(KernelRun(name, before, _copied(args)))
            return result

        return run

    for name, value in list(vars(module).items()):
        if name.startswith("cpp_") and callable(value):
            setattr(module, name, watched(name, value))


def _copied(values: Sequence[Any]) -> list[Any]:
    """Copies that keep the layout of memory, and which of them share it."""
    memories: dict[int, torch.UntypedStorage] = {}
    copies = []
    for value in values:
        if not isinstance(value, torch.Tensor):
            copies.append(value)
            continue
        storage = value.untyped_storage()
        if storage.data_ptr() not in memories:
            memories[storage.data_ptr()] = storage.clone()
        copy = torch.empty(0, dtype=value.dtype)
        copies.append(copy.set_(memories[storage.data_ptr()], value.storage_offset(), value.shape, value.stride()))
    return copies


# ---- loop bodies as data


def _loop(functions: Sequence[Any], sizes: Sequence[Any]) -> Loop:
    group, reduced = max(sizes, key=lambda s: len(s[1]))
    whole = [(group, reduced), ((*group, *reduced), ())]
    bodies = []
    for function, size in zip(functions, sizes):
        node = _scheduler_node(function)
        assert node is not None
        bodies.append(_body(node, suffix=tuple(map(tuple, size)) not in [tuple(map(tuple, w)) for w in whole]))
    return Loop([_expression(s) for s in group], [_expression(s) for s in reduced], bodies)


def _scheduler_node(function: Any) -> Any:
    """The node behind `functools.partial(fn, node)`, with local buffers or without; None for what a GEMM template
    stores its tiles with, which is written for every candidate that autotuning tries, and called by none but itself."""
    partial = getattr(function, "original_fn", function)
    args = getattr(partial, "args", ())
    return args[0] if args and hasattr(args[0], "_body") else None


def _body(node: Any, *, suffix: bool) -> Body:
    body = node._body
    blocks = {"": _nodes(body.root_block.graph), **{name: _nodes(b.graph) for name, b in body.subblocks.items()}}
    return Body(
        name=node.get_name(),
        variables=[(str(v), _expression(n)) for v, n in body.var_ranges.items()],
        indexing={name: _expression(e) for name, e in body.indexing_exprs.items()},
        blocks=blocks,
        indirect=_indirect(body),
        scans={name: _combine(f) for name, f in body.submodules.items() if name.startswith("scan")},
        renames={b.get_name(): list(b.get_mutations()) for b in node.get_outputs() if b.get_mutations()},
        origin=_origin(node),
        suffix=suffix,
    )


def _nodes(graph: torch.fx.Graph) -> list[BodyNode]:
    found = []
    for node in graph.nodes:
        if node.op == "placeholder":
            continue
        args = node.args[1:] if node.op == "call_method" else node.args
        target = node.target if isinstance(node.target, str) else node.target.__name__
        found.append(BodyNode(node.name, target, [_plain(a) for a in args], {k: _plain(v) for k, v in node.kwargs.items()}))
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, torch.fx.Node):
        return {"n": value.name}
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, float):
        return value if math.isfinite(value) else {"f": str(value)}
    if isinstance(value, (bool, int, str, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if getattr(value, "is_Integer", False):
        return int(value)
    if getattr(value, "is_number", False):
        return _plain(float(value))
    return _expression(value)


def _expression(value: Any) -> str:
    from torch.utils._sympy.printers import PythonPrinter

    return str(value) if isinstance(value, int) else PythonPrinter().doprint(value)


def _indirect(body: Any) -> dict[str, Indirect]:
    """Of `set_indirect0` and the like: their shims hold size and wrapping as keywords of `clone`."""
    found = {}
    for name, shim in body.submodules.items():
        if name.startswith("set_"):
            keywords = shim.clone.keywords
            found[name] = Indirect(_expression(keywords["size"]), bool(keywords["wrap_neg"]))
    return found


def _combine(shim: Any) -> str:
    """What a scan's function does, if it is one op."""
    from torch._inductor.ops_handler import MockHandler
    from torch._inductor.virtualized import V

    combine = shim.clone.keywords["combine_fn"]
    with V.set_ops_handler(MockHandler()):
        (text,) = (str(x) for x in combine(("a",), ("b",)))
    return {"ops.add(a, b)": "add", "ops.mul(a, b)": "mul"}.get(text, text)


def _origin(node: Any) -> list[str]:
    """The Dynamo nodes that a body computes, in graph order."""
    origins = {o for o in node.node.origins if o.op == "call_function"} if node.node is not None else set()
    place = {n: i for graph in {o.graph for o in origins} for i, n in enumerate(graph.nodes)}
    found = [o.meta["from_node"][0].name for o in sorted(origins, key=lambda o: place[o]) if o.meta.get("from_node")]
    return list(dict.fromkeys(found))


# ---- a kernel's arguments


def _kernel(group: Any, name: str) -> CppKernel:
    from torch._inductor import config
    from torch._inductor.virtualized import V

    loops = list(getattr(group, "graphdiff_loops", ()))
    if None in loops:
        raise GraphdiffError("a C++ template has no lowering", where=name, fix="switch max_autotune off")
    used = {n.args[0] for loop in loops for body in loop.bodies for block in body.blocks.values() for n in block
            if n.op in ("load", "store", "store_reduction")}
    definitions, _, _ = group.args.cpp_argdefs()
    place = {text.split()[-1].lstrip("*"): i for i, text in enumerate(definitions)}
    real = V.graph.scheduler.mutation_real_name
    arguments, dtypes = {}, {}
    for buffer in sorted(used):
        dtypes[buffer] = str(V.graph.get_dtype(buffer)).removeprefix("torch.")
        inner = _inner_name(group.args, real.get(buffer, buffer))
        if inner in place:
            arguments[buffer] = place[inner]
    sizes = {str(symbol): place[inner] for symbol, inner in group.args.sizevars.items() if inner in place}
    return CppKernel(name, loops, arguments, dtypes, sizes, bool(config.emulate_precision_casts))


def _inner_name(args: Any, buffer: str) -> str:
    for buffers in (args.inplace_buffers, args.output_buffers, args.input_buffers):
        inner = buffers.get(buffer)
        inner = getattr(inner, "inner_name", inner)
        if isinstance(inner, str):
            return inner
    return ""
