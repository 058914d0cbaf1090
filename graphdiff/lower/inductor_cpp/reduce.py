"""Reductions of a loop over its trailing dimensions; accumulators are float32 whatever is stored afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdiff.lower.inductor.arithmetic import Value, depends, float_op, is_integral, layout, to_floats
from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.values import Floats, Ints, as_ints, broadcast

FLOATS = {"sum": "sum", "prod": "prod", "max": "amax", "min": "amin"}
INTS = {"sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "any": np.any, "xor_sum": np.bitwise_xor.reduce}


def reduction(ctx: Context, kind: str, value: Value, shape: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> Any:
    """`ops.reduction` over `axes` of a value that broadcasts to `shape`. A tuple for Welford's mean, m2, weight."""
    if isinstance(value, tuple):
        raise ctx.unsupported(f"the reduction {kind} of {len(value)} values")
    if kind in ("argmax", "argmin"):
        return _place(ctx, kind, value, shape, axes)
    if is_integral(value) and kind != "welford_reduce":
        ints = as_ints(value)
        spread = np.broadcast_to(ints.values, shape)
        if kind not in INTS:
            raise ctx.unsupported(f"the reduction {kind} of integers")
        if kind == "xor_sum" and len(axes) > 1:
            spread, axes = spread.reshape(*shape[: axes[0]], -1), axes[:1]
        return Ints(np.asarray(INTS[kind](spread, axis=axes[0] if kind == "xor_sum" else axes)), ints.dynamic)
    if kind == "any":
        numbers = np.broadcast_to(ctx.builder.numbers(value.elements), shape)
        return Ints((numbers != 0).any(axis=axes), depends(ctx, value))
    floats = to_floats(ctx, value)
    spread = Floats(broadcast(floats.elements, shape), floats.dtype)
    if kind == "welford_reduce":
        return welford(ctx, spread, axes)
    if kind not in FLOATS:
        raise ctx.unsupported(f"the reduction {kind}")
    return float_op(ctx, FLOATS[kind], spread, axes=axes)


def welford(ctx: Context, value: Floats, axes: tuple[int, ...]) -> tuple[Value, ...]:
    """(mean, sum of squared deviations, count): the same numbers summed in another order."""
    count = float(np.prod([value.shape[a] for a in axes]))
    mean = float_op(ctx, "div", float_op(ctx, "sum", value, axes=axes), count)
    deviation = float_op(ctx, "sub", value, layout(mean, lambda a: np.expand_dims(a, axes)))
    spread = float_op(ctx, "sum", float_op(ctx, "mul", deviation, deviation), axes=axes)
    return mean, spread, Floats(broadcast(to_floats(ctx, count).elements, mean.shape))


def _place(ctx: Context, kind: str, value: Value, shape: tuple[int, ...], axes: tuple[int, ...]) -> Ints:
    numbers = as_ints(value).values if is_integral(value) else ctx.builder.numbers(to_floats(ctx, value).elements)
    flat = np.broadcast_to(numbers, shape).reshape(*shape[: axes[0]], -1)
    return Ints(getattr(np, kind)(flat, axis=-1), depends(ctx, value))
