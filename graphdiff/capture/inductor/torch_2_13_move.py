"""torch 2.13: moving a graph from the CPU to CUDA. Used by `torch_2_13` alone."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_symbols
from torch.utils._device import _device_constructors

from graphdiff.errors import GraphdiffError


def moved_to_cuda(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any]
) -> tuple[torch.fx.GraphModule, list[Any], FakeTensorMode]:
    """A copy of a CPU graph that stands on CUDA, its inputs as fake CUDA tensors, and their fake mode.

    No shapes are propagated: AOTAutograd traces the graph anew from its inputs.
    """
    device = torch.device("cuda", 0)
    mode = detect_fake_mode(list(example_inputs))
    shapes = mode.shape_env if mode else shapes_from_numbers(graph)
    mode = FakeTensorMode(shape_env=shapes, allow_non_fake_inputs=True)
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
    for node in moved.graph.nodes:
        node.meta.pop("unbacked_bindings", None)  # symbols of the shape env that Dynamo had
    return moved, inputs, mode


def shapes_from_numbers(graph: torch.fx.GraphModule) -> ShapeEnv | None:
    """What holds sizes that depend on a tensor's numbers (nonzero, item), if the graph has any."""
    if not any(free_symbols(node.meta.get("example_value")) for node in graph.graph.nodes):
        return None
    return ShapeEnv(allow_scalar_outputs=True, allow_dynamic_output_shape_ops=True)


def moved_aten(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], attentions: int = 0
) -> tuple[torch.fx.GraphModule, list[Any], FakeTensorMode]:
    """As `moved_to_cuda`, of a graph of aten ops that nothing traces anew: what its nodes hold is computed again.

    attentions: how many it has as fused ops. Raises GraphdiffError where the CPU has fewer of them, so writes some out.
    """
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    moved, inputs, mode = moved_to_cuda(graph, example_inputs)
    if _attention_of_cuda(moved) < attentions:
        raise GraphdiffError(
            "attention is written out where it is traced, on the CPU, and fused on CUDA",
            where="scaled_dot_product_attention",
            fix="give it no dropout and no mask that needs a gradient, or write it out",
        )
    for node in moved.graph.nodes:
        for stale in ("tensor_meta", "eager_input_vals"):
            node.meta.pop(stale, None)
    with mode:
        FakeTensorProp(moved, mode=mode).propagate_dont_convert_inputs(*inputs)
    return moved, inputs, mode


def attentions_in(graph: torch.fx.GraphModule) -> int:
    """How many calls of `scaled_dot_product_attention` a Dynamo graph has."""
    attention = torch.nn.functional.scaled_dot_product_attention
    graphs = (m.graph for m in graph.modules() if isinstance(m, torch.fx.GraphModule))
    return sum(node.target is attention for g in graphs for node in g.nodes)


def _attention_of_cuda(graph: torch.fx.GraphModule) -> int:
    """The forward's attention was traced on the CPU, as its kernel: put CUDA's there, as `_attention_on_cuda` chooses.

    The first two results are the same in both: the output, and float32 sums that only the backward reads. Its op stays
    the CPU's, which has no lowering: a backward with attention in it is refused. Returns how many there were.
    """
    cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    nodes = list(graph.graph.find_nodes(op="call_function", target=cpu))
    for node in nodes:
        query, key, value, *rest = node.args
        dropout, causal = (*rest, 0.0, False)[:2] if len(rest) < 2 else rest[:2]
        mask, scale = node.kwargs.get("attn_mask"), node.kwargs.get("scale")
        if mask is None:
            node.target = torch.ops.aten._scaled_dot_product_flash_attention.default
            node.args = (query, key, value, dropout, causal, False)
        else:
            with graph.graph.inserting_before(node):
                queries, keys = (_shape(n) for n in (query, key))
                shape = [*queries[:-1], keys[-2]]
                mask = graph.graph.call_function(torch.ops.aten.expand.default, (mask, shape))
            node.target = torch.ops.aten._scaled_dot_product_efficient_attention.default
            node.args = (query, key, value, mask, True, dropout, causal)
        node.kwargs = {"scale": scale}
    graph.recompile()
    return len(nodes)


def _shape(node: torch.fx.Node) -> torch.Size:
    """Of what a node makes; inputs that have been moved keep it as `example_value`."""
    return (node.meta["val"] if "val" in node.meta else node.meta["example_value"]).shape


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


def refuse_constants(graph: torch.fx.GraphModule) -> None:
    """A tensor stored in the graph itself would stay on the CPU, beside inputs on CUDA."""
    for node in graph.graph.nodes:
        value = graph
        for part in str(node.target).split(".") if node.op == "get_attr" else ():
            value = getattr(value, part)
        if isinstance(value, torch.Tensor) and value.dim():
            raise GraphdiffError(
                f"the graph holds a constant tensor {node.target}", where=node.name, fix="pass it as an input"
            )
