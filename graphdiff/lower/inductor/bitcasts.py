"""Bitcasts of Triton kernels: floats as integers and back, where what happened between is a rounding (program/bit_patterns)."""

from __future__ import annotations

import numpy as np

from graphdiff.lower.inductor.arithmetic import Value, broadcast_value, depends, to_floats
from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.values import TL_FLOATS, TL_INTS, Floats, Ints, broadcast, wrap
from graphdiff.program.bit_patterns import rounding_between
from graphdiff.program.dtypes import decode

WIDTH = {"float32": 32, "bfloat16": 16, "int32": 32, "uint32": 32, "int16": 16, "uint16": 16}


def bitcast(ctx: Context, x: Value, dtype: str) -> Value:
    """x's bits as tl.dtype: float32 with 32-bit and bfloat16 with 16-bit integers."""
    if isinstance(x, Floats) and dtype in TL_INTS and WIDTH.get(x.dtype) == WIDTH.get(dtype, 0):
        return _bits_of(ctx, x, dtype)
    if isinstance(x, Ints) and x.bits_of is not None and dtype in TL_FLOATS and dtype in WIDTH:
        return _float_of(ctx, x, TL_FLOATS[dtype])
    if isinstance(x, Ints) and not x.dynamic and WIDTH.get(x.dtype) == WIDTH.get(dtype, 0) and dtype in TL_FLOATS and x.values.size \
            and (x.values == x.values.flat[0]).all():
        return _constant(ctx, x, dtype)
    raise ctx.unsupported(f"a bitcast to tl.{dtype}")


def _constant(ctx: Context, x: Ints, dtype: str) -> Floats:
    """A number written by its bits, as Inductor writes -0.0 (torch/_inductor/codegen/triton.py, _shaped_constant)."""
    number = _numbers(x.values.reshape(-1)[:1], dtype)[0]
    return broadcast_value(ctx, to_floats(ctx, float(number), TL_FLOATS[dtype]), x.shape)


def _numbers(values: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers whose bits some integers are."""
    width = WIDTH[dtype]
    bits = (values & ((1 << width) - 1)).astype(np.uint32 if width == 32 else np.uint16)
    return bits.view(np.float32) if width == 32 else decode(bits, dtype)


def _bits_of(ctx: Context, x: Floats, dtype: str) -> Ints:
    bits = np.ascontiguousarray(ctx.builder.numbers(x.elements), np.float32).view(np.uint32)
    if WIDTH[dtype] == 16:
        bits = bits >> 16
    return Ints(wrap(bits, dtype), depends(ctx, x), x, dtype)


def _float_of(ctx: Context, x: Ints, dtype: str) -> Floats:
    """The float that the bits came from, rounded as its numbers and the new ones say."""
    numbers = _numbers(x.values, dtype)
    source = broadcast(x.bits_of.elements, x.shape)
    found = rounding_between(np.asarray(ctx.builder.numbers(source), np.float32), numbers, dtype)
    if found is None or found[1] == "stochastic":
        raise ctx.unsupported("integer arithmetic on a float's bits that is no rounding")
    name, mode = found
    return Floats(ctx.builder.round(source, name, mode) if name else source, dtype)
