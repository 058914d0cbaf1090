"""One output-code module of a captured function: its tensors are leaves that all depend on the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdiff.errors import GraphdiffError
from graphdiff.lower.inductor.context import Context, SourcePosition
from graphdiff.lower.inductor.output_code import Call, OutputCode
from graphdiff.lower.inductor.pieces import float_leaf, integers
from graphdiff.lower.inductor.values import TORCH_FLOATS, IntStorage, Tensor
from graphdiff.program.builder import Builder
from graphdiff.program.types import Program


@dataclass(frozen=True)
class Input:
    """A tensor argument: raw bits (floats: dtypes.STORAGE; integers: the numbers) of `shape` in contiguous order.

    strides (in elements): how call() expects it laid out, default contiguous. dynamic: depends on tokens.
    """

    name: str
    raw: np.ndarray
    dtype: str
    strides: tuple[int, ...] | None = None
    dynamic: bool = True


def program_from_output_code(text: str, inputs: Sequence[Input | int], *, name: str = "",
                             sources: Mapping[str, SourcePosition] | None = None,
                             modules: Mapping[str, str] | None = None,
                             kernel_sources: Mapping[str, Sequence[str]] | None = None,
                             output_names: Sequence[str] = (),
                             unwritten: list[int] | None = None) -> tuple[Program, dict[int, np.ndarray]]:
    """The program of `call(args)` for args in order (integers are symbolic sizes), and its leaves' bits.

    Outputs are the float tensors it returns, named by output_names, else `output_0` ... by position. Memory that it
    returns and never writes (attention's output, in an engine's piece) is an error, unless `unwritten` collects it.
    """
    builder = Builder()
    ctx = Context(builder, name, sources or {}, modules or {})
    arguments = [argument(builder, x) for x in inputs]
    returned = Call(ctx, OutputCode(text, name, kernel_sources)).run(arguments)
    for i, tensor in enumerate(returned):
        if isinstance(tensor, Tensor) and tensor.dtype in TORCH_FLOATS:
            try:
                builder.output(output_names[i] if i < len(output_names) else f"output_{i}", tensor.read())
            except IndexError as error:
                if unwritten is None:
                    raise GraphdiffError(f"output {i}: {error}", where=name) from None
                unwritten.append(i)
    return builder.program, builder.leaf_bits


def program_from_forward_and_backward(forward: OutputCode, backward: OutputCode, inputs: Sequence[Input | int], tangents: Sequence[Input], *,
                                      gradient_names: Sequence[str] = (), sources: Mapping[str, SourcePosition] | None = None,
                                      modules: Mapping[str, str] | None = None) -> tuple[Program, dict[int, np.ndarray]]:
    """Both in one program: the forward's last results are what it saved, which the backward takes before its tangents.

    Outputs: `output_0` ... of the forward without what it saved, then `grad_NAME` per input that has a gradient.
    """
    builder = Builder()
    first, second = (Call(Context(builder, code.name, sources or {}, modules or {}), code) for code in (forward, backward))
    run_forward_and_backward(builder, first, second, [argument(builder, x) for x in inputs], [argument(builder, t) for t in tangents], gradient_names)
    return builder.program, builder.leaf_bits


def run_forward_and_backward(builder: Builder, forward: Call, backward: Call, arguments: list[Any], tangents: list[Any],
                             gradient_names: Sequence[str] = ()) -> None:
    """Evaluate both calls, and make their results the program's outputs, as `program_from_forward_and_backward` says."""
    returned = forward.run(arguments)
    saved = len(backward.code.arguments()) - len(tangents)
    if not 0 <= saved <= len(returned):
        raise GraphdiffError(f"the backward takes {saved} saved tensors, the forward returns {len(returned)}", where=backward.code.name)
    results, kept = returned[:len(returned) - saved], returned[len(returned) - saved:]
    gradients = backward.run([*kept, *tangents])
    names = [f"output_{i}" for i in range(len(results))] + [f"grad_{gradient_names[i] if i < len(gradient_names) else i}" for i in range(len(gradients))]
    for name, tensor in zip(names, [*results, *gradients]):
        if isinstance(tensor, Tensor) and tensor.dtype in TORCH_FLOATS:
            builder.output(name, tensor.read())


def argument(builder: Builder, x: Input | int) -> Any:
    """A leaf (its memory permuted to the expected strides) or an integer tensor or a size."""
    if not isinstance(x, Input):
        return x
    is_float = x.dtype in TORCH_FLOATS
    tensor = float_leaf(builder, x.name, x.raw, x.dtype, dynamic=x.dynamic) if is_float else integers(x.raw, x.dtype, dynamic=x.dynamic)
    if x.strides is None or tuple(x.strides) == tensor.strides:
        return tensor
    return relaid(tensor, x.strides)


def relaid(tensor: Tensor, strides: tuple[int, ...]) -> Tensor:
    """The same elements in memory with other strides."""
    size = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, strides)) if all(tensor.shape) else 0
    laid = Tensor(type(tensor.storage)(size, tensor.dtype), tensor.shape, tuple(strides))
    if isinstance(tensor.storage, IntStorage):
        held = tensor.storage.load(tensor.index())
        laid.storage.store(laid.index(), held.values, dynamic=held.dynamic)
    else:
        laid.write(tensor.read())
    return laid
