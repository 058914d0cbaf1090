"""CUDA code from Inductor on a machine with no GPU: nothing is compiled for a device and nothing is launched.

`cuda_code_for_graph` takes a graph that Dynamo traced on the CPU (a piece of an engine), `cuda_code_for_function` any
torch callable. Both move the graph to a CUDA device that exists only as properties (`targets.py`) before AOTAutograd
traces it, so that decompositions and fusions are those of CUDA. All private API of torch lies in one module per
supported version.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from graphdiff.capture.inductor.code import CodeInput, FunctionOutput, OutputCode
from graphdiff.capture.inductor.targets import Target, target_named
from graphdiff.capture.inductor.versions import backend

if TYPE_CHECKING:
    import torch

__all__ = [
    "CodeInput", "FunctionOutput", "OutputCode", "Target", "cuda_code_for_function", "cuda_code_for_graph",
    "target_named",
]  # fmt: skip


def cuda_code_for_graph(
    graph: "torch.fx.GraphModule", example_inputs: Sequence[Any], config_patches: dict[str, Any], target: str
) -> list[OutputCode]:
    """Inductor's inference code for a Dynamo-level graph whose inputs lie on the CPU (fake or real).

    `config_patches` are Inductor options, as in `torch.compile(options=...)`. One output code, or several where
    Inductor splits the graph.
    """
    return backend().code_for_graph(graph, example_inputs, config_patches, target_named(target))


def cuda_code_for_function(
    fn: Callable[..., Any],
    inputs: Sequence[Any],
    target: str,
    training: bool = False,
    config_patches: dict[str, Any] | None = None,
) -> OutputCode:
    """Inductor's code for `fn(*inputs)` as `torch.compile(fullgraph=True, dynamic=False)` makes it.

    `fn` runs once, in eager mode on the CPU, to tell which results of the graph it returns. With `training` the
    code is the forward's, and its `backward` the backward's; else `fn` is compiled under `no_grad`.
    """
    return backend().code_for_function(fn, inputs, target_named(target), training, config_patches or {})
