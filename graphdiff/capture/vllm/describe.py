"""FX graphs and their inputs as data."""

import operator
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphdiff.capture.fx_sources import dotted_name
from graphdiff.capture.vllm.raw import RawInput, RawNode, Ref

if TYPE_CHECKING:
    import torch

_PLAIN = (int, float, bool, str, type(None))
_PARAMETER_SOURCE = re.compile(r"_(parameters|buffers)\b")
_PARAMETER_NAME = re.compile(r"_(parameters|buffers)_")


def described_nodes(graph: "torch.fx.Graph") -> list[RawNode]:
    """Every node of a graph, in order."""
    return [
        RawNode(
            name=node.name,
            op=node.op,
            target=_target(node),
            args=tuple(_argument(a) for a in node.args),
            kwargs={key: _argument(value) for key, value in node.kwargs.items()},
        )
        for node in graph.nodes
    ]


def described_inputs(
    graph: "torch.fx.Graph", values: Sequence[Any]
) -> tuple[list[RawInput], dict[str, "torch.Tensor"]]:
    """What the inputs of a graph are, and the real tensors among its parameters by input name."""
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    inputs, parameters = [], {}
    for node, value in zip(placeholders, values, strict=True):
        described = _described_input(node, value)
        inputs.append(described)
        if described.kind == "parameter":
            parameters[node.name] = value.detach()
    return inputs, parameters


def _described_input(node: "torch.fx.Node", value: Any) -> RawInput:
    import torch

    source = _source(node)
    if isinstance(value, (int, torch.SymInt)) and not isinstance(value, bool):
        return RawInput(node.name, "size", source=source, value=str(value))
    if not isinstance(value, torch.Tensor):
        # The name of a layer travels wrapped in an object.
        return RawInput(node.name, "other", source=source, value=str(getattr(value, "value", value))[:200])
    is_parameter = bool(_PARAMETER_SOURCE.search(source) or _PARAMETER_NAME.search(node.name))
    fake = node.meta.get("example_value")
    shape = getattr(fake, "shape", value.shape)
    return RawInput(
        name=node.name,
        kind="parameter" if is_parameter else "input",
        path=_path(node, source),
        source=source,
        dtype=str(value.dtype).removeprefix("torch."),
        shape=tuple(int(s) if isinstance(s, int) else str(s) for s in shape),
    )


def _source(node: "torch.fx.Node") -> str:
    """Dynamo's name of an input, where it kept one."""
    for source in (getattr(node, "_dynamo_source", None), getattr(node.meta.get("grapharg"), "source", None)):
        if source is not None:
            return source.name if isinstance(source.name, str) else source.name()
    return ""


def _path(node: "torch.fx.Node", source: str) -> str:
    """The dotted name of a parameter, or the name of an argument of the model's forward."""
    if source:
        return dotted_name(source)
    name = re.sub(r"^[LGlg]_", "", str(node.target)).strip("_")
    name = re.sub(r"_?(modules|parameters|buffers)_", ".", name)
    return re.sub(r"^self\.", "", name).replace("_.", ".").strip(".")


def _target(node: "torch.fx.Node") -> str:
    target = node.target
    if isinstance(target, str):
        return target
    if target is operator.getitem:
        return "operator.getitem"
    packet = getattr(target, "overloadpacket", target)  # an op goes by its name without the overload
    if hasattr(packet, "_qualified_op_name"):
        return packet._qualified_op_name.replace("::", ".")
    return f"{getattr(target, '__module__', '')}.{getattr(target, '__name__', target)}".strip(".")


def _argument(value: Any) -> Any:
    import torch

    if isinstance(value, torch.fx.Node):
        return Ref(value.name)
    if isinstance(value, (tuple, list)):
        return tuple(_argument(v) for v in value)
    if isinstance(value, dict):
        return {str(key): _argument(v) for key, v in value.items()}
    if isinstance(value, _PLAIN):
        return value
    return repr(value)
