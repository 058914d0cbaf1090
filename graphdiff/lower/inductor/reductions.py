"""Reductions and scans of Triton kernels. A block is the whole reduced size (see triton_kernel), so the accumulators
of a looped reduction hold their start values when they meet the only block, and combine to that block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphdiff.lower.inductor.arithmetic import Value, depends, float_op, is_integral, layout, to_floats, where
from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.values import Floats, Ints, as_ints, broadcast, constant, wrap

INT_REDUCE = {"sum": np.sum, "amax": np.max, "amin": np.min, "prod": np.prod}
SUMMED_IN = {"bool": "int32", "int8": "int32", "int16": "int32", "uint8": "uint32", "uint16": "uint32"}
"""Narrow integers are summed in 32 bits (triton/language/standard.py, _pick_sum_dtype, 3.7.1)."""


def reduced(ctx: Context, x: Value, axis: int, op: str) -> Value:
    if not -len(x.shape) <= axis < len(x.shape):
        raise ctx.broken(f"a reduction over axis {axis} of a value of shape {tuple(x.shape)}")
    if is_integral(x):
        ints = as_ints(x)
        made = np.asarray(INT_REDUCE[op](ints.values, axis=axis))
        of = ints.dtype if op in ("amax", "amin") else SUMMED_IN.get(ints.dtype, ints.dtype)
        return Ints(wrap(made, of) if of else made, ints.dynamic, dtype=of)
    return float_op(ctx, op, x, axes=(axis,))


def total(ctx: Context, x: Value, axis: int = 0, keep_dims: bool = False, **_: Any) -> Value:
    return _kept(reduced(ctx, x, axis, "sum"), axis, keep_dims)


def largest(ctx: Context, x: Value, axis: int = 0, keep_dims: bool = False, **_: Any) -> Value:
    return _kept(reduced(ctx, x, axis, "amax"), axis, keep_dims)


def smallest(ctx: Context, x: Value, axis: int = 0, keep_dims: bool = False, **_: Any) -> Value:
    return _kept(reduced(ctx, x, axis, "amin"), axis, keep_dims)


def product(ctx: Context, x: Value, axis: int) -> Value:
    return reduced(ctx, x, axis, "prod")


def anything(ctx: Context, x: Value, axis: int) -> Ints:
    ints = as_ints(x)
    return Ints(np.asarray(ints.values.astype(bool).any(axis=axis)), ints.dynamic)


def _kept(x: Value, axis: int, keep_dims: bool) -> Value:
    return layout(x, lambda a: np.expand_dims(a, axis)) if keep_dims else x


def reduce_by(ctx: Context, value: Value, axis: int, name: str) -> Value:
    op = {"Add": "sum", "Mult": "prod", "maximum": "amax", "minimum": "amin"}.get(name)
    if op is None or isinstance(value, (list, tuple)):
        raise ctx.unsupported(f"tl.reduce by {name}")
    return reduced(ctx, value, axis, op)


def scan(ctx: Context, values: tuple[Value, ...], axis: int, name: str, *, reverse: bool = False) -> tuple[Value, ...]:
    op = {"Add": "cumsum", "Mult": "cumprod"}.get(name)
    if op is None or len(values) != 1 or reverse:
        raise ctx.unsupported(f"tl.associative_scan by {name}" + (" in reverse" if reverse else ""))
    (x,) = values
    if is_integral(x):
        ints = as_ints(x)
        made = getattr(np, op)(ints.values, axis=axis)
        return (Ints(wrap(made, ints.dtype) if ints.dtype not in ("", "bool") else made, ints.dynamic, dtype=ints.dtype.replace("bool", "")),)
    if x.dtype != "float32":
        raise ctx.unsupported(f"tl.associative_scan in {x.dtype}, which rounds every partial sum")
    return (float_op(ctx, op, x, axis=axis),)


# ---- an extremum and its place: by the numbers
def with_index(ctx: Context, value: Value, index: Value, axis: int, *, pick: Callable[..., np.ndarray]) -> tuple[Value, Ints]:
    """(extremum, its index) along an axis; of equal numbers, and of NaN, the smallest index, wherever it lies
    (torch/_inductor/runtime/triton_helpers.py, maximum_with_index)."""
    numbers = as_ints(value).values if is_integral(value) else ctx.builder.numbers(to_floats(ctx, value).elements)
    index = as_ints(index)
    indices = np.broadcast_to(index.values, numbers.shape)
    found = np.take_along_axis(numbers, np.expand_dims(pick(numbers, axis=axis), axis), axis)
    equal = (numbers == found) | (np.isnan(numbers) & np.isnan(found) if numbers.dtype.kind == "f" else False)
    place = np.expand_dims(np.where(equal, indices, np.iinfo(np.int64).max).argmin(axis=axis), axis)
    take = lambda a: np.take_along_axis(np.broadcast_to(a, numbers.shape), place, axis).squeeze(axis)  # noqa: E731
    return layout(value, take), Ints(take(index.values), index.dynamic or depends(ctx, value))


def combine_with_index(ctx: Context, a: Value, a_index: Value, b: Value, b_index: Value, *, larger: bool) -> tuple[Value, Value]:
    """Elementwise extremum of (accumulator, next) with indices."""
    x, y = (as_ints(v).values if is_integral(v) else ctx.builder.numbers(to_floats(ctx, v).elements) for v in (a, b))
    i, j = as_ints(a_index).values, as_ints(b_index).values
    first = (x > y if larger else x < y) | ((x == y) & (i < j)) | (np.isnan(x) & ~np.isnan(y))
    chosen = Ints(np.asarray(first), depends(ctx, a) or depends(ctx, b))
    return where(ctx, chosen, a, b), where(ctx, chosen, a_index, b_index)


def stable_order(numbers: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """Positions in order; equal numbers keep theirs. NaN is the largest, as torch has it: last, or first if descending."""
    if not descending:
        return np.argsort(numbers, axis=axis, kind="stable")
    backwards = np.argsort(np.flip(numbers, axis), axis=axis, kind="stable")
    return numbers.shape[axis] - 1 - np.flip(backwards, axis)


def sort_with_index(ctx: Context, value: Value, index: Value, rnumel: Any = None, axis: int = -1, stable: bool = False,
                    descending: bool = False, dim: int | None = None) -> tuple[Value, Ints]:
    """Values in order and the indices that came along; equal values keep their order."""
    numbers = as_ints(value).values if is_integral(value) else ctx.builder.numbers(to_floats(ctx, value).elements)
    axis = axis if dim is None else dim
    order = stable_order(numbers, axis, descending)
    take = lambda a: np.take_along_axis(np.broadcast_to(a, numbers.shape), order, axis)  # noqa: E731
    index = as_ints(index)
    return layout(value, take), Ints(take(index.values), index.dynamic or depends(ctx, value))


# ---- Welford's variance: mean = sum / n, m2 = sum of squared deviations
def welford_reduce(ctx: Context, value: Value, mean: Value, m2: Value, weight: Value, first: bool) -> tuple[Value, ...]:
    if not first:
        raise ctx.unsupported("triton_helpers.welford_reduce over several blocks")
    shape = weight.shape
    zero, one = (Floats(broadcast(to_floats(ctx, v).elements, shape)) for v in (0.0, 1.0))
    return value, zero, one


def welford(ctx: Context, mean: Value, m2: Value, weight: Value, axis: int) -> tuple[Value, ...]:
    """Of single elements (m2 0, weight 1), which is what a first block holds."""
    if constant(ctx.builder, m2.elements) != 0 or constant(ctx.builder, weight.elements) != 1:
        raise ctx.unsupported("triton_helpers.welford of partial results")
    count = float(mean.shape[axis])
    average = float_op(ctx, "div", reduced(ctx, mean, axis, "sum"), count)
    deviation = float_op(ctx, "sub", mean, layout(average, lambda a: np.expand_dims(a, axis)))
    spread = reduced(ctx, float_op(ctx, "mul", deviation, deviation), axis, "sum")
    return average, spread, Floats(broadcast(to_floats(ctx, count).elements, average.shape))


# ---- softmax's running (maximum, sum of exponentials)
def softmax_combine(ctx: Context, old_max: Value, old_sum: Value, new: Value, fast: bool = False,
                    strict_zero: bool = False) -> tuple[Value, Value]:
    """With an empty accumulator (-inf, 0): the block itself and 1. strict_zero (since torch 2.14): -0 is below 0."""
    if constant(ctx.builder, old_max.elements) != -np.inf or constant(ctx.builder, old_sum.elements) != 0:
        raise ctx.unsupported("triton_helpers.online_softmax_combine over several blocks")
    shape = np.broadcast_shapes(old_max.shape, new.shape)
    return (Floats(broadcast(new.elements, shape), new.dtype),
            Floats(broadcast(to_floats(ctx, 1.0).elements, shape)))


def softmax_reduce(ctx: Context, old_max: Value, old_sum: Value, axis: int, fast: bool = False,
                   strict_zero: bool = False) -> tuple[Value, Value]:
    """(maximum, sum(old_sum * exp(old_max - maximum)))."""
    top = reduced(ctx, old_max, axis, "amax")
    scaled = float_op(ctx, "exp", float_op(ctx, "sub", old_max, layout(top, lambda a: np.expand_dims(a, axis))))
    if constant(ctx.builder, old_sum.elements) != 1:
        scaled = float_op(ctx, "mul", old_sum, scaled)
    return top, reduced(ctx, scaled, axis, "sum")


TABLE: dict[str, Callable[..., Any]] = {
    "sum": total, "max": largest, "min": smallest, "max2": largest, "min2": smallest,
    "fmax2": largest,  # of a softmax (torch 2.14): a NaN reaches the sum whichever maximum is taken
    "prod": product, "any": anything,
    "max_with_index": lambda ctx, v, i, axis: with_index(ctx, v, i, axis, pick=np.argmax),
    "min_with_index": lambda ctx, v, i, axis: with_index(ctx, v, i, axis, pick=np.argmin),
    "maximum_with_index": lambda ctx, *a: combine_with_index(ctx, *a, larger=True),
    "minimum_with_index": lambda ctx, *a: combine_with_index(ctx, *a, larger=False),
    "sort_with_index": sort_with_index,
    "welford_reduce": welford_reduce, "welford": welford,
    "online_softmax_combine": softmax_combine, "online_softmax_reduce": softmax_reduce,
}
