"""torch 2.13: a callable as Dynamo traces it, and Inductor run on a graph. Used by `torch_2_13` and `torch_2_13_native`."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from graphdiff.capture.fx_sources import dotted_name, layer_position, model_position, module_paths, source_positions
from graphdiff.capture.inductor.code import CodeInput, FunctionOutput
from graphdiff.errors import GraphdiffError

LONGEST_MESSAGE = 200


@dataclass
class Traced:
    """`values` are `graph_inputs` as they were before the function ran."""

    graph: torch.fx.GraphModule
    graph_inputs: list[Any]
    values: list[Any]
    outputs: list[FunctionOutput]


def trace(fn: Callable[..., Any], inputs: Sequence[Any], training: bool) -> Traced:
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
        with torch.set_grad_enabled(training), by_numbers, quiet_caches():
            returned = torch.compile(fn, backend=keep, fullgraph=True, dynamic=False)(*inputs)
    except (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError) as error:
        raise no_one_graph(error, "function", name_of(fn)) from error
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = next((line.partition(": got ")[2] for line in lines if ": got " in line), lines[0])
        raise GraphdiffError(
            f"the function raises while it is traced{' with gradients' if training else ''}: {reason[:LONGEST_MESSAGE]}",
            where=name_of(fn),
            fix="run it on its inputs first; with gradients it may not write to them",
        ) from error
    finally:
        torch._dynamo.reset()
    if len(seen) != 1:
        raise GraphdiffError(
            "this function computes nothing that torch.compile sees",
            where=name_of(fn),
            fix="capture a function of tensors that returns what it computes",
        )
    graph, graph_inputs, before = seen[0]
    outputs = [_where_from(leaf, results, graph_inputs) for leaf in tree_leaves(returned)]
    values = [_value_before(value, kept) for value, kept in zip(graph_inputs, before, strict=True)]
    return Traced(graph, graph_inputs, values, outputs)


@contextlib.contextmanager
def quiet_caches() -> Iterator[None]:
    """Dynamo traces through functions that remember their answers and warns of each: what transformers asks there about versions is no news."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Dynamo detected a call to a `functools.lru_cache`")
        yield


def no_one_graph(error: Exception, what: str, where: str) -> GraphdiffError:
    """The error of what Dynamo cannot trace whole: a graph break, or (UserError) Python that asks for a tensor's number."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    fix = f"avoid the graph break: {lines[0]}"
    if "grouped_mm_fallback" in str(error):  # integrations/moe.py, _can_use_grouped_mm: what Inductor compiles takes BF16 weights alone
        fix = "transformers runs experts of float32 weights (--autocast) in a loop over their tokens; leave out --autocast, or --compile"
    elif not isinstance(error, torch._dynamo.exc.Unsupported) and any("data-dependent" in line for line in lines[:2]):
        cause = next((line.removeprefix("Caused by: ").rpartition(" (_dynamo/")[0] or line for line in lines if line.startswith("Caused by: ")), lines[0])
        fix = f"a loop, a branch or a size depends on the numbers of a tensor: {' '.join(cause.split())}"
        if "expert" in cause:
            fix += "; transformers' default experts_implementation, grouped_mm, has no such loop"
    return GraphdiffError(f"torch.compile cannot trace this {what} as one graph", where=where, fix=fix)


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


def bound_inputs(fn: Callable[..., Any], inputs: Sequence[Any], traced: Traced) -> list[CodeInput]:
    """The graph's inputs, and which arguments or parameters of `fn` they are."""
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


def name_of(fn: Callable[..., Any]) -> str:
    """What a function is called in an error."""
    return getattr(fn, "__qualname__", type(fn).__name__)


def run_inductor(graph: torch.fx.GraphModule, inputs: list[Any], **options: Any) -> Callable[..., Any]:
    """`compile_fx`, the default backend's way in. Raises GraphdiffError if it cannot write code for this graph."""
    from torch._inductor.compile_fx import compile_fx

    try:
        return compile_fx(graph, inputs, **options)
    except GraphdiffError:
        raise
    except Exception as error:
        if isinstance(own := getattr(error, "inner_exception", error.__cause__), GraphdiffError):
            raise own from error  # Inductor wraps what our own hooks raise
        message = str(error).strip().splitlines() or [type(error).__name__]
        raise GraphdiffError(
            f"Inductor cannot write code for this graph: {message[0][:LONGEST_MESSAGE]}",
            where=f"torch {torch.__version__}",
            fix="see the traceback with --debug; an op that needs a real device cannot be captured without one",
        ) from error


def origins_of(graph: torch.fx.Graph) -> dict[str, Any]:
    """Where the nodes of a Dynamo graph come from, as the fields of `OutputCode`."""
    return {
        "sources": source_positions(graph, model_position),
        "layer_sources": source_positions(graph, layer_position),
        "modules": module_paths(graph),
    }
