"""Where a node of a Dynamo graph comes from: the model's file and line, and the module it was called in."""

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+), in ', re.MULTILINE)
# Frames of helpers that models call: an op is placed where the model calls them. A path is a wrapper if it ends in
# one of these or lies below one of these folders.
WRAPPER_FILES = (
    "vllm/_custom_ops.py",
    "vllm/model_executor/parameter.py",
    "vllm/model_executor/custom_op.py",
    "vllm/model_executor/utils.py",
    "vllm/utils/torch_utils.py",
)
WRAPPER_FOLDERS = (
    "vllm/ir/",
    "vllm/compilation/",
    "vllm/platforms/",
    "site-packages/torch/",
    "transformers/integrations/",
)
# Layers of the engine, which models are built from: better than a wrapper, not as good as the model.
LAYER_FOLDERS = ("vllm/model_executor/layers/",)


def source_positions(
    graph: "torch.fx.Graph", position: Callable[[str], tuple[str, int] | None]
) -> dict[str, tuple[str, int]]:
    """Node name -> (file, line), for every node with a stack trace in which `position` finds a place."""
    found = {node.name: position(node.meta.get("stack_trace") or "") for node in graph.nodes}
    return {name: place for name, place in found.items() if place is not None}


def model_position(stack: str) -> tuple[str, int] | None:
    """The model's own frame in a stack trace: the innermost one outside of wrappers and of engine layers; else the
    innermost one outside of wrappers; else the innermost."""
    frames = [(match["file"], int(match["line"])) for match in _FRAME.finditer(stack)]
    unwrapped = [frame for frame in frames if not is_wrapper(frame[0])]
    of_model = [frame for frame in unwrapped if not _lies_in(frame[0], LAYER_FOLDERS)]
    best = of_model or unwrapped or frames
    return best[-1] if best else None


def layer_position(stack: str) -> tuple[str, int] | None:
    """The innermost frame outside of wrappers: the line that does the arithmetic, in the model or an engine layer."""
    frames = [(match["file"], int(match["line"])) for match in _FRAME.finditer(stack)]
    best = [frame for frame in frames if not is_wrapper(frame[0])] or frames
    return best[-1] if best else None


def module_paths(graph: "torch.fx.Graph") -> dict[str, str]:
    """Node name -> dotted path of the innermost module that the node was traced in, where Dynamo tells."""
    paths = {}
    for node in graph.nodes:
        stack = node.meta.get("nn_module_stack")
        if stack:
            path, _ = list(stack.values())[-1]
            paths[node.name] = dotted_name(path)
    return {name: path for name, path in paths.items() if path}


def dotted_name(source: str) -> str:
    """Dynamo's name of a module or parameter as a person writes it: `L['self']._modules['layers']...` or
    `L_self_modules_layers_modules_0_...` -> `layers.0....`."""
    name = re.sub(r"\['?([^'\]]+)'?\]", r".\1", source)
    name = re.sub(r"\b_(modules|parameters|buffers)\.", "", name)
    name = re.sub(r"^(L|G)\.", "", name)
    return re.sub(r"^self\.?", "", name)


def is_wrapper(path: str) -> bool:
    """A helper that models call: an op is placed where the model calls it."""
    return path.endswith(WRAPPER_FILES) or _lies_in(path, WRAPPER_FOLDERS)


def _lies_in(path: str, folders: tuple[str, ...]) -> bool:
    tidy = path.replace(os.sep, "/")
    return any(f"/{folder}" in tidy for folder in folders)
