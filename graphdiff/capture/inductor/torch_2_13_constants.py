"""torch 2.13: tensors that a graph writes out in numbers, made its inputs. Used by `torch_2_13` alone.

On CUDA `torch.tensor([0, 2], device=x.device)` is a tensor in memory (a short one is written into the kernel, to the same
numbers). Traced on a CPU it would stay there, beside inputs that were moved; an input moves as all others do.
"""

from dataclasses import replace
from typing import Any

import torch
from torch._dynamo.source import ConstantSource

from graphdiff.capture.inductor.torch_2_13_trace import Traced

LITERALS = (torch.tensor, torch.as_tensor, torch.asarray)


def constants_as_inputs(traced: Traced) -> Traced:
    """The same function with such tensors as further inputs, at the end. Scalars stay: they mix with any device."""
    graph = traced.graph.graph
    found = [(node, value) for node in graph.nodes if (value := _written_out(traced.graph, node)) is not None and value.dim()]
    if not found:
        return traced
    for node, value in found:
        *_, last = (n for n in graph.nodes if n.op == "placeholder") if traced.graph_inputs else (None,)
        with graph.inserting_after(last) if last is not None else graph.inserting_before(next(iter(graph.nodes))):
            made = graph.placeholder(f"constant_{node.name}")
        made.meta["example_value"] = value
        made._dynamo_source = ConstantSource(source_name=made.name)
        node.replace_all_uses_with(made)
        graph.erase_node(node)
        traced.graph_inputs.append(value)
    traced.graph.recompile()
    values = [value for _, value in found]
    return replace(traced, values=[*traced.values, *values])


def _written_out(module: torch.fx.GraphModule, node: torch.fx.Node) -> torch.Tensor | None:
    """The tensor that a node holds in the text of the program; None if it depends on anything, or is none."""
    if node.op == "get_attr":
        value: Any = module
        for part in str(node.target).split("."):
            value = getattr(value, part)
        return value if isinstance(value, torch.Tensor) else None
    options = {key: value for key, value in node.kwargs.items() if key != "device"}
    if node.op == "call_function" and node.target in LITERALS and not node.all_input_nodes:
        return node.target(*node.args, **options)
    if node.op == "call_method" and node.target == "new_tensor" and len(node.all_input_nodes) == 1:
        return torch.tensor(*node.args[1:], **{"dtype": node.args[0].meta["example_value"].dtype, **options})
    return None
