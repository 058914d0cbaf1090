"""The calls of Triton kernels that are understood, as data: name -> function on values.

Names stand for tl.*, libdevice.*, tl_math.* and triton_helpers.* alike: a name means the same in all of them. Each
function gets the evaluator (`run.ctx`, `run.kernel`, `run.programs`), then the call's own arguments.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from graphdiff.lower.inductor import bitcasts, memory, reductions, template
from graphdiff.lower.inductor.arithmetic import (
    Value, binary, broadcast_value, convert, depends, float_op, hypot, is_integral, is_number, layout, ldexp, to_floats, where)
from graphdiff.lower.inductor.values import TL_FLOATS, Floats, Ints, Pointer, as_ints, broadcast, constant, promoted, wrap


@dataclass(frozen=True)
class Dtype:
    """`tl.float32` and the like."""

    name: str


UNARY = {name: name for name in (
    "exp", "exp2", "expm1", "log", "log2", "log1p", "log10", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh", "sinh",
    "cosh", "atan", "asin", "acos", "atanh", "asinh", "acosh", "erf", "erfc", "erfinv", "lgamma", "floor", "ceil",
    "trunc")}
UNARY |= {"sqrt_rn": "sqrt", "nearbyint": "nearest", "rint": "nearest", "fast_expf": "exp"}
BINARY = {"pow": "pow", "fmod": "fmod", "atan2": "atan2", "copysign": "copysign", "div_rn": "div", "fdiv": "div",
          "mul_rn": "mul", "add_rn": "add", "sub_rn": "sub", "nextafter": "nextafter"}
PREDICATES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "isnan": np.isnan, "isinf": np.isinf, "isfinited": np.isfinite, "signbit": np.signbit, "finitef": np.isfinite}


def unary_math(run: Any, x: Value, op: str) -> Value:
    return float_op(run.ctx, op, x)


def binary_math(run: Any, a: Value, b: Value, op: str) -> Value:
    return float_op(run.ctx, op, a, b)


def predicate(run: Any, x: Value, test: Callable[[np.ndarray], np.ndarray]) -> Ints:
    x = to_floats(run.ctx, x)
    return Ints(test(run.ctx.builder.numbers(x.elements)), depends(run.ctx, x))


def absolute(run: Any, x: Value) -> Value:
    if isinstance(x, Ints):
        made = np.abs(x.values)
        return Ints(wrap(made, x.dtype) if x.dtype else made, x.dynamic, dtype=x.dtype)
    return float_op(run.ctx, "abs", x)


def sigmoid(run: Any, x: Value) -> Value:
    """1 / (1 + exp(-x)), as Triton defines it."""
    ctx = run.ctx
    return float_op(ctx, "div", 1.0, float_op(ctx, "add", 1.0, float_op(ctx, "exp", float_op(ctx, "neg", x))))


def fma(run: Any, a: Value, b: Value, c: Value) -> Value:
    return binary(run.ctx, "Add", binary(run.ctx, "Mult", a, b), c)


def extremum(run: Any, a: Value, b: Value, propagate_nan: Any = None, *, op: str) -> Value:
    """Which operand is taken beside a NaN (torch 2.14 says it) decides no rounding: here NaN is taken."""
    if is_integral(a) and is_integral(b):
        of = promoted(a, b)
        a, b = as_ints(a), as_ints(b)
        return Ints(getattr(np, op)(a.values, b.values), a.dynamic or b.dynamic, dtype=of)
    start = -math.inf if op == "maximum" else math.inf
    if isinstance(a, Floats) and isinstance(b, Floats) and constant(run.ctx.builder, a.elements) == start:
        return Floats(broadcast(b.elements, np.broadcast_shapes(a.shape, b.shape)), b.dtype)  # an empty accumulator
    return float_op(run.ctx, op, a, b)


# ---- making and moving values
def full(run: Any, shape: list[int], value: Value, dtype: Dtype) -> Value:
    if isinstance(value, Ints | Floats):
        return broadcast_value(run.ctx, convert(run.ctx, value, dtype.name), tuple(shape))
    if dtype.name in TL_FLOATS:
        made = to_floats(run.ctx, float(value), TL_FLOATS[dtype.name])
        return broadcast_value(run.ctx, made, tuple(shape))
    made = convert(run.ctx, value, dtype.name)
    return layout(made, lambda a: np.broadcast_to(a, tuple(shape)))


def zeros(run: Any, shape: list[int], dtype: Dtype) -> Value:
    return full(run, shape, 0, dtype)


def zeros_like(run: Any, x: Value) -> Value:
    if isinstance(x, Floats):
        return broadcast_value(run.ctx, to_floats(run.ctx, 0.0, x.dtype), x.shape)
    return Ints(np.zeros_like(x.values))


def arange(run: Any, start: int, end: int) -> Ints:
    return Ints(np.arange(start, end, dtype=np.int64))


def broadcast_to(run: Any, x: Value, *shape: Any) -> Value:
    target = _shape(shape)
    if run.kernel.kind == "template":
        target = template.with_batch(x, target)
    return broadcast_value(run.ctx, x, target)


def reshape(run: Any, x: Value, *shape: Any) -> Value:
    target = _shape(shape)
    return Floats(x.elements.reshape(*target), x.dtype) if isinstance(x, Floats) else layout(
        x, lambda a: a.reshape(target))


def permute(run: Any, x: Value, *axes: Any) -> Value:
    order = _shape(axes) if axes else (1, 0)
    return layout(x, lambda a: a.transpose(order))


def expand_dims(run: Any, x: Value, axis: int) -> Value:
    return layout(x, lambda a: np.expand_dims(a, axis))


def cast(run: Any, x: Value, dtype: Dtype, bitcast: bool = False, fp_downcast_rounding: Any = None) -> Value:
    if fp_downcast_rounding not in (None, "rtne"):
        raise run.ctx.unsupported(f"rounding mode {fp_downcast_rounding}")
    if bitcast:
        return bitcasts.bitcast(run.ctx, x, dtype.name)
    return convert(run.ctx, x, dtype.name)


def _shape(parts: tuple[Any, ...]) -> tuple[int, ...]:
    if len(parts) == 1 and isinstance(parts[0], (list, tuple)):
        parts = tuple(parts[0])
    return tuple(int(p) for p in parts)


# ---- memory, the grid, checks
def load(run: Any, pointer: Pointer, mask: Value = None, other: Value = None, eviction_policy: str = "",
         cache_modifier: str = "", volatile: bool = False) -> Value:
    return memory.load(run.ctx, pointer, mask, other)


def store(run: Any, pointer: Pointer, value: Value, mask: Value = None, eviction_policy: str = "",
          cache_modifier: str = "") -> None:
    memory.store(run.ctx, pointer, value, mask)


def atomic_add(run: Any, pointer: Pointer, value: Value, mask: Value = None, sem: str = "", scope: str = "") -> None:
    memory.atomic_add(run.ctx, pointer, value, mask)


def program_id(run: Any, axis: int) -> Value:
    return run.programs.ids[axis]


def loop(run: Any, *bounds: Value, **_: Any) -> range:
    """tl.range: bounds that the kernel computes are scalars."""
    if any(isinstance(b, Ints) and b.values.ndim for b in bounds) or any(isinstance(b, Floats) for b in bounds):
        raise run.ctx.unsupported("a loop whose bounds are no numbers")
    return range(*(int(b.values) if isinstance(b, Ints) else b for b in bounds))


def device_assert(run: Any, condition: Value, message: str = "", mask: Value = None) -> None:
    if not np.all(as_ints(condition).values):
        raise run.ctx.broken(f"device_assert failed: {message}")


def where_call(run: Any, condition: Value, a: Value, b: Value) -> Value:
    return where(run.ctx, condition, a, b)


def div_floor_integer(run: Any, a: Value, b: Value) -> Value:
    if is_number(a) and is_number(b):
        return a // b
    of = promoted(a, b)
    a, b = as_ints(a), as_ints(b)
    return Ints(a.values // b.values, a.dynamic or b.dynamic, dtype=of)


def remainder_integer(run: Any, a: Value, b: Value) -> Value:
    if is_number(a) and is_number(b):
        return a % b
    of = promoted(a, b)
    a, b = as_ints(a), as_ints(b)
    return Ints(a.values % b.values, a.dynamic or b.dynamic, dtype=of)


def ignored(run: Any, *_: Any, **__: Any) -> None:
    """Hints and barriers: nothing to a sequential evaluation."""


def same(run: Any, x: Value, *_: Any, **__: Any) -> Value:
    return x


def reduction_of(function: Callable[..., Value]) -> Callable[..., Value]:
    """A function of reductions.py (context first) as a call."""
    return lambda run, *args, **kwargs: function(run.ctx, *args, **kwargs)


def scan(run: Any, value: Any, axis: int, combine: Any = None, reverse: bool = False, **_: Any) -> Any:
    return reductions.scan(run.ctx, value, axis, _combine_name(run, combine), reverse=reverse)


def reduce(run: Any, value: Any, axis: int, combine: Any = None, keep_dims: bool = False) -> Any:
    if keep_dims:
        raise run.ctx.unsupported("tl.reduce that keeps the axis")
    return reductions.reduce_by(run.ctx, value, axis, _combine_name(run, combine))


def _combine_name(run: Any, combine: Any) -> str:
    """What a helper `def f(a, b)` does, if it is one operation."""
    helper = run.kernel.helpers.get(combine) if isinstance(combine, str) else None
    body = [s for s in helper.body if not isinstance(s, ast.Pass)] if helper else []
    if len(body) == 2 and isinstance(body[0], ast.Assign) and isinstance(body[1], ast.Return):
        value = body[0].value
        names = {n.id for n in ast.walk(value) if isinstance(n, ast.Name)} & {a.arg for a in helper.args.args}
        if isinstance(value, ast.BinOp) and len(names) == 2:
            return type(value.op).__name__
        if isinstance(value, ast.Call):
            return ast.unparse(value.func).split(".")[-1]
    raise run.ctx.unsupported(f"a scan or reduction by {combine}")


CALLS: dict[str, Callable[..., Any]] = {
    **{name: partial(unary_math, op=op) for name, op in UNARY.items()},
    **{name: partial(binary_math, op=op) for name, op in BINARY.items()},
    **{name: partial(predicate, test=test) for name, test in PREDICATES.items()},
    **dict.fromkeys(("abs", "fabs"), absolute), "sigmoid": sigmoid, "fma": fma,
    "hypot": lambda run, a, b: hypot(run.ctx, a, b), "ldexp": lambda run, x, power: ldexp(run.ctx, x, power),
    "maximum": partial(extremum, op="maximum"), "minimum": partial(extremum, op="minimum"),
    "where": where_call, "full": full, "zeros": zeros, "zeros_like": zeros_like, "arange": arange,
    "broadcast_to": broadcast_to, "reshape": reshape, "view": reshape, "permute": permute, "trans": permute,
    "expand_dims": expand_dims, "cast": cast, "load": load, "store": store, "atomic_add": atomic_add, "program_id": program_id,
    "num_programs": lambda run, axis: run.programs.counts[axis], "cdiv": lambda run, a, b: -(-a // b), "range": loop, "static_range": loop,
    "device_assert": device_assert,
    **dict.fromkeys(("debug_barrier", "static_assert", "assume", "set_driver_to_gpu"), ignored),
    **dict.fromkeys(("multiple_of", "max_contiguous", "promote_to_tensor"), same),
    "div_floor_integer": div_floor_integer, "remainder_integer": remainder_integer,
    "associative_scan": scan, "reduce": reduce, "dot": template.dot,
    "constexpr_next_power_of_2": lambda run, n: 1 << max(0, n - 1).bit_length(),
    "cumsum": lambda run, x, axis=0, **k: reductions.scan(run.ctx, (x,), axis, "Add", reverse=k.get("reverse", False))[0],
    **{name: reduction_of(f) for name, f in reductions.TABLE.items()},
}


def method(run: Any, name: str, owner: Value, positional: list[Value], keywords: dict[str, Value]) -> Value:
    """A call on a value: `tmp3.to(tl.float32)`, `x.broadcast_to(...)`."""
    if name == "to":
        return cast(run, owner, *positional, **keywords)
    if name in ("broadcast_to", "reshape", "view", "permute", "trans", "sum", "expand_dims"):
        return CALLS[name](run, owner, *positional, **keywords)
    raise run.ctx.unsupported(f"the method .{name}()")
