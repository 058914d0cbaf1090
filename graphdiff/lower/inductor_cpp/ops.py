"""The ops of loop bodies (`torch._inductor.ops_handler.OpsHandler`) as codegen/cpp.py of torch 2.13 writes them.

Float registers are float32 (casts of bfloat16 are placed by the backend, see registers.py); C++ and vector code of an
op are the same function up to the library's last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from graphdiff.lower.inductor.arithmetic import (
    Value, binary, compare, depends, float_op, hypot, is_integral, is_number, ldexp, to_floats, unary, where)
from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.triton_calls import PREDICATES
from graphdiff.lower.inductor.values import TORCH_FLOATS, TORCH_INTS, Floats, Ints, as_ints, wrap

UNARY = ("exp", "exp2", "expm1", "log", "log2", "log1p", "log10", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh", "sinh",
         "cosh", "atan", "asin", "acos", "atanh", "asinh", "acosh", "erf", "erfc", "erfinv", "lgamma",
         "reciprocal", "neg", "abs")
ROUND_TO_INTEGER = {"floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "nearest"}
BINARY = {"add": "Add", "sub": "Sub", "mul": "Mult", "truediv": "Div", "div_rn": "Div", "floordiv": "FloorDivPython", "truncdiv": "FloorDiv",
          "bitwise_and": "BitAnd", "bitwise_or": "BitOr", "bitwise_xor": "BitXor", "bitwise_left_shift": "LShift",
          "bitwise_right_shift": "RShift", "and_": "BitAnd", "or_": "BitOr", "xor": "BitXor", "lshift": "LShift",
          "rshift": "RShift", "int_truediv": "Div"}
COMPARE = {"eq": "Eq", "ne": "NotEq", "lt": "Lt", "le": "LtE", "gt": "Gt", "ge": "GtE"}
LOGICAL = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}


def constant(ctx: Context, value: Any, dtype: str) -> Value:
    """A number of a C++ type: bool and integers stay concrete."""
    if dtype in TORCH_FLOATS:
        made = to_floats(ctx, float(value))
        return made if dtype == "float32" else Floats(ctx.builder.round(made.elements, dtype), dtype)
    if dtype in TORCH_INTS:
        return Ints(np.asarray(bool(value) if dtype == "bool" else int(value)), dtype=dtype)
    raise ctx.unsupported(f"a constant of {dtype}")


def as_integers(ctx: Context, x: Value, dtype: str) -> Ints:
    """A conversion to an integer format: of floats towards zero, by their numbers."""
    if dtype not in TORCH_INTS:
        raise ctx.unsupported(f"a conversion to {dtype}")
    if isinstance(x, Floats):
        numbers = ctx.builder.numbers(x.elements)
        if dtype == "int8" and not ((numbers > -129) & (numbers < 128)).all():
            raise ctx.unsupported("a conversion to int8 of a number out of its range, which vectors hold at its ends and single numbers do not")
        values = numbers != 0 if dtype == "bool" else truncated(numbers, dtype)
        return Ints(wrap(values, dtype), depends(ctx, x), dtype=dtype)
    ints = as_ints(x)
    return Ints(wrap(ints.values, dtype), ints.dynamic, dtype=dtype)


def truncated(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """Floats towards zero as x86 does: to 32 bits (64 for wide formats), with the lowest number for NaN and what is out of
    range (cvttps; ATen/cpu/vec/vec256/vec256_convert.h, vec512_convert.h; measured without vectors too), of which narrower
    formats keep the low bits. Of int8 that is so of single numbers; a vector is held at its ends (convert_float_to_int8).
    """
    ends = np.iinfo("int64" if np.dtype(dtype).itemsize >= 8 or dtype == "uint32" else "int32")
    whole = np.trunc(numbers.astype(np.float64))
    inside = (whole >= ends.min) & (whole < -float(ends.min))
    return np.where(inside, np.where(inside, whole, 0).astype(np.int64), ends.min)


def _unary(ctx: Context, op: str, x: Value) -> Value:
    if is_integral(x):
        ints = as_ints(x)
        if op == "neg":
            return unary(ctx, "USub", ints)
        if op == "abs":
            made = np.abs(ints.values)
            return Ints(wrap(made, ints.dtype) if ints.dtype else made, ints.dynamic, dtype=ints.dtype)
    return float_op(ctx, op, x)


def _binary(ctx: Context, op: str, a: Value, b: Value) -> Value:
    if op == "FloorDivPython":
        if is_integral(a) and is_integral(b):
            x, y = as_ints(a), as_ints(b)
            return Ints(x.values // y.values, x.dynamic or y.dynamic)
        return float_op(ctx, "floor", float_op(ctx, "div", a, b))
    return binary(ctx, op, a, b)


def _to_integer(ctx: Context, op: str, x: Value) -> Value:
    return x if is_integral(x) else float_op(ctx, op, x)


def _extremum(ctx: Context, op: str, a: Value, b: Value) -> Value:
    if is_integral(a) and is_integral(b):
        x, y = as_ints(a), as_ints(b)
        return Ints(getattr(np, op)(x.values, y.values), x.dynamic or y.dynamic)
    return float_op(ctx, op, a, b)


def _logical(ctx: Context, function: Callable, a: Value, b: Value) -> Ints:
    x, y = as_integers(ctx, a, "bool"), as_integers(ctx, b, "bool")
    return Ints(function(x.values, y.values), x.dynamic or y.dynamic)


def _not(ctx: Context, x: Value) -> Ints:
    ints = as_integers(ctx, x, "bool")
    return Ints(~ints.values, ints.dynamic)


def _predicate(ctx: Context, test: Callable, x: Value) -> Ints:
    if is_integral(x):
        ints = as_ints(x)
        return Ints(test(ints.values.astype(np.float64)), ints.dynamic)
    return Ints(test(ctx.builder.numbers(x.elements)), depends(ctx, x))


def _sigmoid(ctx: Context, x: Value) -> Value:
    return float_op(ctx, "div", 1.0, float_op(ctx, "add", 1.0, float_op(ctx, "exp", float_op(ctx, "neg", x))))


def _relu(ctx: Context, x: Value) -> Value:
    return _extremum(ctx, "maximum", x, Ints(np.asarray(0)) if is_integral(x) else 0.0)


def _square(ctx: Context, x: Value) -> Value:
    return binary(ctx, "Mult", x, x)


def _mod(ctx: Context, x: Value, y: Value) -> Value:
    """C's: the sign of the dividend."""
    return binary(ctx, "Mod", x, y)


def _remainder(ctx: Context, x: Value, y: Value) -> Value:
    """Python's: the sign of the divisor."""
    if is_integral(x) and is_integral(y):
        a, b = as_ints(x), as_ints(y)
        return Ints(np.mod(a.values, b.values), a.dynamic or b.dynamic)
    return float_op(ctx, "remainder", x, y)


def _sign(ctx: Context, x: Value) -> Value:
    if is_integral(x):
        ints = as_ints(x)
        return Ints(np.sign(ints.values), ints.dynamic)
    return float_op(ctx, "sign", x)


def _pow(ctx: Context, x: Value, y: Value) -> Value:
    return binary(ctx, "Pow", x, y) if is_number(x) and is_number(y) else float_op(ctx, "pow", x, y)


def _fma(ctx: Context, a: Value, b: Value, c: Value) -> Value:
    return binary(ctx, "Add", binary(ctx, "Mult", a, b), c)


TABLE: dict[str, Callable[..., Value]] = {
    **{name: (lambda ctx, x, op=name: _unary(ctx, op, x)) for name in UNARY},
    **{name: (lambda ctx, x, op=op: _to_integer(ctx, op, x)) for name, op in ROUND_TO_INTEGER.items()},
    **{name: (lambda ctx, a, b, op=op: _binary(ctx, op, a, b)) for name, op in BINARY.items()},
    **{name: (lambda ctx, a, b, op=op: compare(ctx, op, a, b)) for name, op in COMPARE.items()},
    **{name: (lambda ctx, a, b, f=f: _logical(ctx, f, a, b)) for name, f in LOGICAL.items()},
    **{name: (lambda ctx, x, f=f: _predicate(ctx, f, x)) for name, f in PREDICATES.items()},
    **{name: (lambda ctx, a, b, op=name: float_op(ctx, op, a, b)) for name in ("fmod", "atan2", "copysign", "nextafter")},
    **{name: (lambda ctx, a, b, op=name: _extremum(ctx, op, a, b)) for name in ("maximum", "minimum")},
    "logical_not": _not, "bitwise_not": lambda ctx, x: unary(ctx, "Invert", as_ints(x)), "sigmoid": _sigmoid, "relu": _relu,
    "square": _square, "mod": _mod, "remainder": _remainder, "sign": _sign, "pow": _pow, "where": where, "fma": _fma,
    "hypot": hypot, "ldexp": ldexp, "identity": lambda ctx, x: x,
}


def nan_if_masked(value: Any) -> float:
    """What `other` of a masked load is worth as a number."""
    return math.nan if value is None else float(value)
