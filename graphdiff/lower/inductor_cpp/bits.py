"""Floats taken as integers and back: a rounding written with shifts and masks, recognised by its numbers.

As for eager code (lower/aten/bits.py): what comes back as a float is compared with the values that were taken as bits,
under every rounding mode. Anything else is an opaque leaf.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphdiff.lower.inductor.arithmetic import depends
from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.values import Floats, Ints, broadcast
from graphdiff.program.dtypes import LOW, STORAGE, decode, round_to

MODES = ("rne", "rna", "rz", "up", "down")
WIDTHS = {"float32": "uint32", "bfloat16": "uint16", "float16": "uint16"}


def of_floats(ctx: Context, x: Floats, dtype: str) -> Ints:
    """The bits of a value's numbers as integers of `dtype`."""
    numbers = ctx.builder.numbers(x.elements).astype(np.float32)
    if x.dtype == "float32":
        raw = numbers.view(np.uint32)
    elif x.dtype == "bfloat16":
        raw = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    elif x.dtype == "float16":
        raw = numbers.astype(np.float16).view(np.uint16)
    else:
        raise ctx.unsupported(f"{x.dtype} taken as bits")
    if np.dtype(dtype).itemsize != raw.itemsize:
        raise ctx.unsupported(f"{x.dtype} taken as {dtype}")
    return Ints(raw.view(dtype).astype(np.int64), depends(ctx, x))


def to_floats(ctx: Context, x: Ints, dtype: str, sources: Sequence[Floats]) -> Floats:
    """The float whose bits are `x`: one of the sources, rounded or not."""
    if dtype not in WIDTHS:
        raise ctx.unsupported(f"bits taken as {dtype}")
    raw = x.values.astype(np.int64).astype(WIDTHS[dtype])
    stored = raw.view(STORAGE[dtype])
    numbers = decode(np.ascontiguousarray(stored).reshape(-1), dtype).astype(np.float32).reshape(x.shape)
    for source in reversed(sources):
        if np.broadcast_shapes(source.shape, x.shape) != x.shape:
            continue
        elements = broadcast(source.elements, x.shape)
        known = ctx.builder.numbers(elements)
        if np.array_equal(known, numbers, equal_nan=True):
            return Floats(elements, dtype)
        for low in [dtype] if dtype in LOW else sorted(LOW):
            for mode in MODES:
                if np.array_equal(round_to(known, low, mode), numbers, equal_nan=True):
                    return Floats(ctx.builder.round(elements, low, mode), dtype)
    return Floats(ctx.builder.leaf("bits", np.ascontiguousarray(stored), dtype, dynamic=True, keep=True), dtype)
