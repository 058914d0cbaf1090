"""What native code calls beside its kernels, where it differs from CUDA's (lower/inductor/extern.py has the rest)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdiff.lower.inductor import extern as shared
from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.reductions import stable_order
from graphdiff.lower.inductor.values import TORCH_FLOATS, TORCH_INTS, IntStorage, Tensor, is_dynamic, wrap
from graphdiff.lower.inductor_cpp import fused_attention
from graphdiff.lower.inductor_cpp.ops import truncated
from graphdiff.program.builder import Elements

Handlers = dict[str, Callable[..., Any]]
IGNORED = frozenset({"torch.ops.aten._assert_async.msg", "print"})


def plain_name(name: str) -> str:
    """`torch.ops.mkldnn._linear_pointwise.default` -> `mkldnn._linear_pointwise`."""
    for prefix in ("torch.ops.", "extern_kernels."):
        name = name.removeprefix(prefix)
    return name.removesuffix(".default")


def linear_pointwise(ctx: Context, x: Tensor, weight: Tensor, bias: Tensor | None, attr: str = "none", *rest: Any,
                     **_: Any) -> Tensor:
    """mkldnn's linear, weight [out, in]; a fused activation has a schedule of its own and is not followed."""
    if attr != "none":
        raise ctx.unsupported(f"mkldnn._linear_pointwise with {attr}")
    made = ctx.builder.op("mm", x.read(), weight.read().map(lambda ids: ids.swapaxes(-1, -2)))
    if bias is not None:
        made = ctx.builder.op("add", made, bias.read())
    return shared.finish(ctx, made, shared.fresh(made.shape, x.dtype))


def baddbmm(ctx: Context, bias: Tensor, a: Tensor, b: Tensor, *, alpha: float = 1, beta: float = 1, out: Tensor | None = None) -> Tensor:
    """As addmm: one rounding."""
    return shared.addmm(ctx, bias, a, b, alpha=alpha, beta=beta, out=out)


def sort(ctx: Context, x: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False) -> list[Tensor]:
    """Data movement steered by the numbers; equal values keep their order."""
    if isinstance(x.storage, IntStorage):
        numbers = x.storage.values[x.index()]
        dynamic = bool(x.storage.dynamic[x.index()].any())
    else:
        numbers, dynamic = ctx.builder.numbers(x.read()), is_dynamic(ctx.builder, x.read())
    order = stable_order(numbers, dim, descending)
    indices = _integers(order, "int64", dynamic)
    if isinstance(x.storage, IntStorage):
        return [_integers(np.take_along_axis(numbers, order, dim), x.dtype, dynamic), indices]
    values = shared.fresh(order.shape, x.dtype)
    values.write(x.read().map(lambda ids: np.take_along_axis(ids, order, dim)))
    return [values, indices]


def cumsum(ctx: Context, x: Tensor, dim: int, *, dtype: str | None = None) -> Tensor:
    if isinstance(x.storage, IntStorage):
        places = x.index()
        if dtype in TORCH_FLOATS:
            raise ctx.unsupported(f"cumsum of integers to {dtype}")
        return _integers(np.cumsum(x.storage.values[places], dim), dtype or "int64", bool(x.storage.dynamic[places].any()))
    if dtype in TORCH_INTS:  # cast, then summed (native/ReduceOps.cpp, cumsum)
        whole = truncated(ctx.builder.numbers(x.read()), dtype)
        return _integers(np.cumsum(wrap(whole, dtype).astype(np.int64), dim), dtype, is_dynamic(ctx.builder, x.read()))
    made = ctx.builder.op("cumsum", x.read(), axis=dim % len(x.shape), shape=x.shape)
    return shared.finish(ctx, made, shared.fresh(x.shape, dtype or x.dtype))


def cumprod(ctx: Context, x: Tensor, dim: int, *, dtype: str | None = None) -> Tensor:
    """Accumulates in float32 and rounds what it stores (aten/src/ATen/native/cpu/ReduceOpsKernel.cpp)."""
    if isinstance(x.storage, IntStorage):
        raise ctx.unsupported("aten.cumprod of integers")
    made = ctx.builder.op("cumprod", x.read(), axis=dim % len(x.shape), shape=x.shape)
    return shared.finish(ctx, made, shared.fresh(x.shape, dtype or x.dtype))


def index_add(ctx: Context, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """Adds slice after slice in float32, rounded once (aten/src/ATen/native/TensorAdvancedIndexing.cpp)."""
    if alpha != 1:
        raise ctx.unsupported("index_add with alpha")
    places = index.storage.values[index.index()].reshape(-1)
    rows, added = np.array(np.moveaxis(x.read().ids, dim, 0)), np.moveaxis(source.read().ids, dim, 0)
    for row, place in enumerate(places):
        made = ctx.builder.op("add", Elements(rows[place].shape, ids=rows[place]), Elements(added[row].shape, ids=added[row]))
        rows[place] = made.ids
    for place in np.unique(places):
        rows[place] = ctx.builder.round(Elements(rows[place].shape, ids=rows[place]), x.dtype).ids
    out = shared.fresh(x.shape, x.dtype)
    out.write(Elements(x.shape, ids=np.moveaxis(rows, 0, dim)))
    return out


def _integers(values: np.ndarray, dtype: str, dynamic: bool) -> Tensor:
    from graphdiff.program.builder import contiguous

    return Tensor(IntStorage.of(values, dtype, dynamic=dynamic), values.shape, contiguous(values.shape))


# ---- complex numbers, which Inductor leaves to ATen


@dataclass(frozen=True)
class Complex:
    """A complex64 tensor: its two parts."""

    real: Elements
    imaginary: Elements


def view_as_complex(ctx: Context, x: Tensor) -> Complex:
    return Complex(*(x.read().map(lambda ids, part=part: ids[..., part]) for part in (0, 1)))


def complex_(ctx: Context, real: Tensor, imaginary: Tensor) -> Complex:
    return Complex(real.read(), imaginary.read())


def polar(ctx: Context, length: Tensor, angle: Tensor) -> Complex:
    r, theta = length.read(), angle.read()
    op = ctx.builder.op
    return Complex(op("mul", r, op("cos", theta)), op("mul", r, op("sin", theta)))


def view_as_real(ctx: Context, x: Complex) -> Tensor:
    out = shared.fresh((*x.real.shape, 2), "float32")
    out.write(Elements(out.shape, ids=np.stack((x.real.ids, x.imaginary.ids), -1)))
    return out


def unsqueeze(ctx: Context, x: Complex, dim: int) -> Complex:
    if not isinstance(x, Complex):
        raise ctx.unsupported("aten.unsqueeze outside a kernel")
    return Complex(*(p.map(lambda ids: np.expand_dims(ids, dim)) for p in (x.real, x.imaginary)))


def multiply(ctx: Context, a: Complex, b: Complex) -> Complex:
    if not isinstance(a, Complex) or not isinstance(b, Complex):
        raise ctx.unsupported("aten.mul outside a kernel")
    op = ctx.builder.op
    real = op("sub", op("mul", a.real, b.real), op("mul", a.imaginary, b.imaginary))
    return Complex(real, op("add", op("mul", a.real, b.imaginary), op("mul", a.imaginary, b.real)))


HANDLERS: Handlers = {
    "mkldnn._linear_pointwise": linear_pointwise, "baddbmm": baddbmm,
    **fused_attention.HANDLERS, "aten.sort.stable": sort, "aten.index_add": index_add, "aten.cumsum": cumsum,
    "aten.cumprod": cumprod,
    "aten.view_as_complex": view_as_complex, "aten.view_as_real": view_as_real, "aten.complex": complex_,
    "aten.polar": polar, "aten.unsqueeze": unsqueeze, "aten.mul.Tensor": multiply,
}
