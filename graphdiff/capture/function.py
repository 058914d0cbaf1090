"""Any torch callable, FILE.py:FN, recorded eagerly (inputs kept, so that it can be evaluated again)."""

from __future__ import annotations

import importlib.util
import inspect
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from graphdiff.errors import GraphdiffError
from graphdiff.program import Builder, Program


@dataclass(frozen=True)
class Function:
    """A callable and its inputs: `call(*args)`; `names` of the arguments; `file` it lives in."""

    call: Callable[..., Any]
    args: tuple[Any, ...]
    names: tuple[str, ...]
    file: str
    name: str


@dataclass(frozen=True)
class Recorded:
    """A function's program with the bits of all its leaves, how it ran, the texts of generated code, and Inductor's
    options that were set (`options.in_force`).

    Raises GraphdiffError if every result is empty (a mask that keeps no row): nothing was computed that could be compared.
    """

    program: Program
    bits: dict[int, np.ndarray]
    mode: str
    target: str = ""
    notes: tuple[str, ...] = ()
    sources: dict[str, str] = field(default_factory=dict)
    not_captured: tuple[str, ...] = ()
    inductor: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        outputs = self.program.outputs
        if outputs and not any(np.prod(o.operand.shape, dtype=np.int64) for o in outputs):
            raise GraphdiffError("every result is empty on these inputs, so nothing was computed", where=self.mode,
                                 fix="give inputs that leave something")


def load_attribute(spec: str) -> tuple[Callable[..., Any], Path]:
    """`FILE.py:NAME` -> the callable and its file. Runs the file: it is code the user names, not data.

    Raises GraphdiffError if the file or the name is not there, or the file raises.
    """
    file, _, name = spec.rpartition(":")
    path = Path(file)
    if not file or not name or not path.suffix == ".py":
        raise GraphdiffError(f"{spec!r} is not FILE.py:FUNCTION", fix="name a Python file and a function in it")
    if not path.is_file():
        raise GraphdiffError(f"no such file: {file}", fix="check the path")
    module_spec = importlib.util.spec_from_file_location(f"graphdiff_user_{path.stem}", path)
    module = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise GraphdiffError(f"{file} does not import: {type(error).__name__}: {error}", fix="run it with python first") from error
    if not callable(getattr(module, name, None)):
        raise GraphdiffError(f"{file} has no function {name}", fix="check the name")
    return getattr(module, name), path


def load_function(spec: str, inputs: str, seed: int) -> Function:
    """The function and its inputs: INPUTS is FILE.py:FN, called with `seed`, returning a tuple of arguments."""
    import torch

    call, path = load_attribute(spec)
    make, _ = load_attribute(inputs)
    random.seed(seed)
    torch.manual_seed(seed)
    try:
        args = make(seed)
    except (Exception, SystemExit) as error:
        raise GraphdiffError(f"{inputs} raised {type(error).__name__}: {error}", fix="it is called with the seed") from error
    if isinstance(args, dict):
        raise GraphdiffError(f"{inputs} returns a dict, and arguments are given by place", fix="return a tuple, in the order of the parameters")
    args = tuple(args) if isinstance(args, (tuple, list)) else (args,)
    try:
        names = tuple(inspect.signature(call).parameters)
    except (TypeError, ValueError):
        names = ()
    names = tuple(names[i] if i < len(names) else f"arg{i}" for i in range(len(args)))
    return Function(call, args, names, str(path), spec.rpartition(":")[2])


def record_function(function: Function) -> tuple[Builder, tuple[str, ...]]:
    """Run it once, eagerly, and record what it does. Returns the builder and notes on what was met.

    Every input is dynamic. Raises GraphdiffError if the function raises, returns no float tensor, or has an op with
    no lowering.
    """
    import torch
    from torch.utils._pytree import tree_flatten_with_path, tree_leaves

    from graphdiff.lower.aten import Positions, Recorder, is_float

    args = _on_cpu(function.args)
    recorder = Recorder(Builder(), Positions(prefer=(function.file,)))
    for name, arg in zip(function.names, args):
        leaves = tree_flatten_with_path(arg)[0]
        for path, t in leaves:
            if isinstance(t, torch.Tensor):
                recorder.announce(t, name + "".join(str(p) for p in path), dynamic=True, keep=True)
        for t in tree_leaves(arg):
            if is_float(t):
                recorder.elements(t)
    try:
        with recorder:
            out = function.call(*args)
    except GraphdiffError:
        raise
    except (Exception, SystemExit) as error:
        raise GraphdiffError(f"{function.file}:{function.name} raised {type(error).__name__}: {error}",
                             fix="run it on its inputs first") from error
    tensors = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
    outputs = [recorder.elements(t) if is_float(t) else recorder.integers(t) for t in tensors if is_float(t) or recorder.integers(t) is not None]
    if not outputs:
        raise GraphdiffError(f"{function.file}:{function.name} returns no floating-point tensor", fix="return what should be compared")
    for i, x in enumerate(outputs):
        recorder.builder.output(f"output{i}", x)
    return recorder.builder, recorder.remarks.notes()


def record_eager(function: Function) -> Recorded:
    """The function as eager torch runs it."""
    builder, notes = record_function(function)
    return Recorded(builder.program, builder.leaf_bits, "eager", "cpu", notes)


def opaque_in(program: Program) -> tuple[str, ...]:
    """A note on the opaque ops of a program, if it has any."""
    from graphdiff.lower.aten.remarks import Remarks

    return Remarks(opaque=[str(n.attrs["name"]) for n in program.nodes if n.op == "opaque"]).notes()


def _on_cpu(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Inputs as given, each tensor with memory of its own, so that two arguments never share provenance by accident."""
    import torch
    from torch.utils._pytree import tree_map

    return tree_map(lambda t: t.detach().cpu().clone() if isinstance(t, torch.Tensor) else t, args)
