"""Fallbacks to ATen that mixtures of experts are made of: how many tokens each expert gets, a matmul per expert.

Sources (torch 2.13, aten/src/ATen/native): cuda/SummaryOps.cu and cpu/HistogramKernel.cpp (histc), cuda/GroupedBlas.cpp and
GroupedMMUtils.h (_grouped_mm).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.values import IntStorage, Tensor, is_dynamic, new_storage
from graphdiff.program.builder import SHIFT, Elements, contiguous

ALIGNED = 16
"""Bytes that a row of the result is padded to (create_grouped_gemm_output_tensor)."""
BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def histc(ctx: Context, x: Tensor, bins: int = 100, low: float = 0, high: float = 0) -> Tensor:
    """Counts, of these inputs' numbers; the last bin holds its right end, what is outside counts nowhere."""
    if isinstance(x.storage, IntStorage):
        got = x.storage.load(x.index())
        numbers, dynamic, dtype = got.values.astype(np.float64), got.dynamic, x.dtype
    else:
        elements = x.read()
        numbers, dynamic, dtype = ctx.builder.numbers(elements), is_dynamic(ctx.builder, elements), x.dtype
    numbers = numbers.reshape(-1)
    if low == high:
        low, high = (float(numbers.min()), float(numbers.max())) if numbers.size else (low, high)
    if low == high:
        low, high = low - 1, high + 1
    inside = numbers[(numbers >= low) & (numbers <= high)]
    places = ((inside - inside.dtype.type(low)) * bins / inside.dtype.type(high - low)).astype(np.int64)
    counts = np.bincount(np.minimum(places, bins - 1), minlength=bins)
    if isinstance(x.storage, IntStorage):
        return Tensor(IntStorage.of(counts, dtype, dynamic=dynamic), counts.shape, (1,))
    made = Tensor(new_storage(bins, dtype), (bins,), (1,))
    made.write(ctx.builder.const_array(counts.astype(np.float32), dynamic=dynamic))
    return made


def grouped_mm(ctx: Context, a: Tensor, b: Tensor, offs: Tensor | None = None, bias: Any = None, out_dtype: str | None = None) -> Tensor:
    """A product per group, each rounded once. `offs` are where groups end: in the rows of a (2D x 3D, experts), the columns
    of b (3D x 2D) or what is summed over (2D x 2D; a group of nothing is zeros)."""
    if bias is not None:
        raise ctx.unsupported("a grouped matmul with a bias")
    flat = len(a.shape) == 2, len(b.shape) == 2
    ends = [] if offs is None else [int(e) for e in offs.storage.load(offs.index()).values]
    shape = (*((len(ends),) if all(flat) else () if any(flat) else a.shape[:1]), a.shape[-2], b.shape[-1])
    made = _padded(shape, out_dtype or a.dtype)
    if offs is None:
        made.write(ctx.builder.round(ctx.builder.op("mm", a.read(), b.read()), made.dtype))
        return made
    start = 0
    for i, end in enumerate(ends):
        if all(flat):
            left, right, place = _piece(a, 1, start, end), _piece(b, 0, start, end), _one(made, i)
        elif flat[0]:
            left, right, place = _piece(a, 0, start, end), _one(b, i), _piece(made, 0, start, end)
        else:
            left, right, place = _one(a, i), _piece(b, 1, start, end), _piece(made, 1, start, end)
        start = end
        if 0 in place.shape:
            continue
        if 0 in left.shape:
            place.write(Elements(place.shape, ids=np.full(place.shape, ctx.builder.const(0.0).node << SHIFT)))
        else:
            place.write(ctx.builder.round(ctx.builder.op("mm", left.read(), right.read()), made.dtype))
    return made


def _padded(shape: tuple[int, ...], dtype: str) -> Tensor:
    step = ALIGNED // BYTES[dtype]
    strides = contiguous((*shape[:-1], -(-shape[-1] // step) * step))
    return Tensor(new_storage(shape[0] * strides[0], dtype), shape, strides)


def _piece(x: Tensor, axis: int, start: int, end: int) -> Tensor:
    shape = tuple(end - start if i == axis else n for i, n in enumerate(x.shape))
    return Tensor(x.storage, shape, x.strides, x.offset + start * x.strides[axis])


def _one(x: Tensor, i: int) -> Tensor:
    return Tensor(x.storage, x.shape[1:], x.strides[1:], x.offset + i * x.strides[0])


HANDLERS = {"torch.ops.aten.histc.default": histc, "extern_kernels._grouped_mm": grouped_mm, "torch.ops.aten._grouped_mm.default": grouped_mm}
