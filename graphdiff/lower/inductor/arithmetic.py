"""Operators on values: integers computed, floats turned into ops, both broadcast as numpy does."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.values import (
    TL_FLOATS, TL_INTS, Floats, Ints, Pointer, as_ints, broadcast, is_dynamic, promoted, wrap)
from graphdiff.program.dtypes import LOW, round_to

Value = Any
"""Ints, Floats, Pointer, or a Python number (a compile-time constant of the kernel)."""

FLOAT_OPS = {"Add": "add", "Sub": "sub", "Mult": "mul", "Div": "div", "Mod": "fmod", "Pow": "pow"}


def _c_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Integer division towards zero, as C and Triton."""
    q = a // b
    return q + ((a % b != 0) & ((a < 0) != (b < 0)))


INT_OPS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Add": np.add, "Sub": np.subtract, "Mult": np.multiply, "FloorDiv": _c_div, "Mod": np.fmod,
    "BitAnd": np.bitwise_and, "BitOr": np.bitwise_or, "BitXor": np.bitwise_xor, "LShift": np.left_shift,
    "RShift": np.right_shift,
}
PYTHON_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add, "Sub": operator.sub, "Mult": operator.mul, "Div": operator.truediv,
    "FloorDiv": operator.floordiv, "Mod": operator.mod, "Pow": operator.pow, "BitAnd": operator.and_,
    "BitOr": operator.or_, "BitXor": operator.xor, "LShift": operator.lshift, "RShift": operator.rshift,
}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge, "Eq": operator.eq,
    "NotEq": operator.ne,
}


def is_number(x: Value) -> bool:
    return isinstance(x, (int, float, np.generic))


def is_integral(x: Value) -> bool:
    return isinstance(x, (Ints, bool, int, np.integer, np.bool_))


def to_floats(ctx: Context, x: Value, dtype: str = "float32") -> Floats:
    """x as a float value; numbers become constants, integer arrays constant leaves."""
    if isinstance(x, Floats):
        return x
    if isinstance(x, Ints):
        made = ctx.builder.const_array(x.values.astype(np.float32), dynamic=x.dynamic)
        return Floats(ctx.builder.round(made, dtype) if dtype in LOW else made, dtype)
    if is_number(x):
        number = float(round_to(np.asarray(x, np.float32), dtype)) if dtype in LOW else float(x)
        return Floats(ctx.builder.const(number), dtype)
    raise ctx.unsupported(f"a float made of {type(x).__name__}")


def float_op(ctx: Context, op: str, *ins: Value, **attrs: Any) -> Floats:
    """An op on float values; rounded if it runs in a low format (no fp32 operand, as Triton promotes)."""
    dtype = result_dtype(ctx, *ins)
    if op == "div" and dtype in LOW:  # triton/language/semantic.py, truediv: 16-bit floats are divided in float32
        dtype = "float32"
    elements = [to_floats(ctx, x, dtype).elements for x in ins]
    return Floats(ctx.builder.round(ctx.builder.op(op, *elements, **attrs), dtype), dtype)


def hypot(ctx: Context, a: Value, b: Value) -> Floats:
    """As lower/aten has it: the root of a^2 + b^2, scaled by the larger one where a square leaves float32; infinite if one is."""
    size = float_op(ctx, "sqrt", float_op(ctx, "add", float_op(ctx, "mul", a, a), float_op(ctx, "mul", b, b)))
    x, y = np.abs(np.broadcast_arrays(*(ctx.builder.numbers(to_floats(ctx, v).elements) for v in (a, b))))
    far, dynamic = np.maximum(x, y), depends(ctx, a) or depends(ctx, b)
    plain = (far == 0) | ((far > 1e-18) & (far < 1e18)) | np.isnan(far)
    if not plain.all():
        one, two = float_op(ctx, "abs", a), float_op(ctx, "abs", b)
        top = float_op(ctx, "maximum", one, two)
        share = float_op(ctx, "div", float_op(ctx, "minimum", one, two), top)
        scaled = float_op(ctx, "mul", top, float_op(ctx, "sqrt", float_op(ctx, "add", float_op(ctx, "mul", share, share), 1.0)))
        size = where(ctx, Ints(plain, dynamic), size, scaled)
    infinite = np.isinf(x) | np.isinf(y)
    return where(ctx, Ints(infinite, dynamic), np.inf, size) if infinite.any() else size


def ldexp(ctx: Context, x: Value, power: Value) -> Value:
    """x times 2 ** power, by three factors that float32 holds: no such factor rounds."""
    if not is_integral(power):
        raise ctx.unsupported("ldexp by a float")
    ints = as_ints(power)
    left = ints.values.astype(np.int64)
    for _ in range(3):
        now = np.clip(left, -126, 127)
        left = left - now
        if now.any():
            x = float_op(ctx, "mul", x, Ints(np.exp2(now.astype(np.float64)), ints.dynamic))
    return x if isinstance(x, Floats) else to_floats(ctx, x)


def result_dtype(ctx: Context, *ins: Value) -> str:
    """Triton's promotion: numbers and integers take the floats' format, mixed formats give float32."""
    formats = {x.dtype for x in ins if isinstance(x, Floats)}
    if not formats:
        return "float32"
    return formats.pop() if len(formats) == 1 else "float32"


def binary(ctx: Context, op: str, a: Value, b: Value) -> Value:
    """`a op b` for a Python operator name (Add, Mult ...)."""
    if isinstance(a, Pointer) or isinstance(b, Pointer):
        pointer, shift = (a, b) if isinstance(a, Pointer) else (b, a)
        if op != "Add":
            raise ctx.unsupported(f"{op} on pointers")
        return Pointer(pointer.storage, int_op(ctx, "Add", pointer.offset, shift), pointer.dtype)
    if is_number(a) and is_number(b):
        return PYTHON_OPS[op](a, b)
    if is_integral(a) and is_integral(b) and op != "Div":
        return int_op(ctx, op, a, b)
    if op not in FLOAT_OPS:
        raise ctx.unsupported(f"{op} on floats")
    return float_op(ctx, FLOAT_OPS[op], a, b)


def int_op(ctx: Context, op: str, a: Value, b: Value) -> Ints:
    if op not in INT_OPS:
        raise ctx.unsupported(f"{op} on integers")
    dtype = promoted(a, b)
    a, b = as_ints(a), as_ints(b)
    x, y = a.values, b.values
    if x.dtype == bool and y.dtype == bool and not op.startswith("Bit"):
        dtype = ""
        x, y = x.astype(np.int64), y.astype(np.int64)
    if op in ("FloorDiv", "Mod") and (y == 0).any():
        raise ctx.broken("integer division by zero")
    sources = [i.bits_of for i in (a, b) if i.bits_of is not None]
    one = sources[0] if sources and all(s is sources[0] for s in sources) else None
    made = np.asarray(INT_OPS[op](x, y))
    return Ints(wrap(made, dtype) if dtype else made, a.dynamic or b.dynamic, one, dtype)


def compare(ctx: Context, op: str, a: Value, b: Value) -> Value:
    """A comparison; of floats, by their numbers under the schedule."""
    if is_number(a) and is_number(b):
        return COMPARE[op](a, b)
    if is_integral(a) and is_integral(b):
        a, b = as_ints(a), as_ints(b)
        return Ints(np.asarray(COMPARE[op](a.values, b.values)), a.dynamic or b.dynamic)
    a, b = to_floats(ctx, a), to_floats(ctx, b)
    x, y = (ctx.builder.numbers(v.elements) for v in (a, b))
    return Ints(np.asarray(COMPARE[op](x, y)), depends(ctx, a) or depends(ctx, b))


def depends(ctx: Context, x: Value) -> bool:
    """True if a value depends on tokens."""
    if isinstance(x, Floats):
        return is_dynamic(ctx.builder, x.elements)
    return isinstance(x, Ints) and x.dynamic


def unary(ctx: Context, op: str, x: Value) -> Value:
    if is_number(x):
        return {"USub": operator.neg, "UAdd": operator.pos, "Not": operator.not_,
                "Invert": (lambda v: not v) if isinstance(x, (bool, np.bool_)) else operator.invert}[op](x)
    if isinstance(x, Floats) and op == "USub":
        return float_op(ctx, "neg", x)
    if isinstance(x, Ints) and op in ("USub", "Invert"):
        made = -x.values.astype(np.int64) if op == "USub" else ~x.values
        return Ints(wrap(made, x.dtype) if x.dtype else made, x.dynamic, dtype=x.dtype)
    raise ctx.unsupported(f"{op} on {type(x).__name__}")


def convert(ctx: Context, x: Value, dtype: str) -> Value:
    """`x.to(tl.dtype)`: to a low float format rounds, to float32 is nothing, to integers needs the numbers."""
    if dtype in TL_FLOATS:
        wanted = TL_FLOATS[dtype]
        plain = to_floats(ctx, x)
        if plain.dtype == wanted:
            return plain
        return Floats(ctx.builder.round(plain.elements, wanted), wanted)
    if dtype not in TL_INTS:
        raise ctx.unsupported(f"a conversion to tl.{dtype}")
    if isinstance(x, Floats):
        numbers = ctx.builder.numbers(x.elements)
        values = numbers != 0 if dtype == "int1" else saturated(numbers, TL_INTS[dtype])
        return Ints(wrap(values, TL_INTS[dtype]), depends(ctx, x), dtype=TL_INTS[dtype])
    ints = as_ints(x)
    return Ints(wrap(ints.values, TL_INTS[dtype]), ints.dynamic, ints.bits_of, TL_INTS[dtype])


def saturated(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """Floats towards zero as CUDA's `cvt.rzi` does: held at the format's ends (of 32 bits at least), NaN gives 0.

    Narrower formats are converted by way of 32 bits, whose low bits are kept (LLVM's NVPTX backend).
    """
    wide = dtype if np.dtype(dtype).itemsize >= 4 else "int32"
    ends = np.iinfo(wide)
    whole = np.nan_to_num(np.trunc(numbers.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
    inside = (whole > float(ends.min)) & (whole < float(ends.max))
    return np.where(inside, np.where(inside, whole, 0).astype(np.int64), np.where(whole > 0, min(ends.max, 2**63 - 1), ends.min))


def where(ctx: Context, condition: Value, a: Value, b: Value) -> Value:
    """A select: data movement. A constant branch is the constant's element."""
    chosen = as_ints(condition)
    mask = chosen.values.astype(bool)
    if is_integral(a) and is_integral(b):
        of = promoted(a, b)
        a, b = as_ints(a), as_ints(b)
        made = np.where(mask, a.values, b.values)
        return Ints(wrap(made, of) if of else made, chosen.dynamic or a.dynamic or b.dynamic, dtype=of)
    dtype = result_dtype(ctx, a, b)
    a, b = to_floats(ctx, a, dtype), to_floats(ctx, b, dtype)
    shape = np.broadcast_shapes(mask.shape, a.shape, b.shape)
    if mask.all() or not mask.any():
        return Floats(broadcast((a if mask.all() else b).elements, shape), dtype)
    other = b.elements.ids
    return Floats(a.elements.map(lambda ids: np.where(mask, ids, other)), dtype)


def layout(x: Value, function: Callable[[np.ndarray], np.ndarray]) -> Value:
    """Pure data movement on integers or floats."""
    if isinstance(x, Floats):
        return Floats(x.elements.map(function), x.dtype)
    ints = as_ints(x)
    return Ints(np.asarray(function(ints.values)), ints.dynamic, dtype=ints.dtype)


def broadcast_value(ctx: Context, x: Value, shape: tuple[int, ...]) -> Value:
    if isinstance(x, float):
        x = to_floats(ctx, x)
    if isinstance(x, Floats):
        return Floats(broadcast(x.elements, shape), x.dtype)
    return layout(x, lambda a: np.broadcast_to(a, shape))
