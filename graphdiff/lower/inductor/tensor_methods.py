"""Methods of tensors that output code calls between its kernels: partial sums of a mix-order reduction are added so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.values import TORCH_FLOATS, IntStorage, Tensor, fresh
from graphdiff.program.builder import Elements, contiguous


def view(ctx: Context, x: Tensor, *shape: Any) -> Tensor:
    """The same contiguous memory in another shape. Raises GraphdiffError if x is not contiguous."""
    wanted = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (list, tuple)) else tuple(shape)
    if x.strides != contiguous(x.shape) or np.prod(wanted, dtype=np.int64) != np.prod(x.shape, dtype=np.int64):
        raise ctx.unsupported(f".view({list(wanted)}) of a tensor of shape {list(x.shape)}, strides {list(x.strides)}")
    return Tensor(x.storage, wanted, contiguous(wanted), x.offset)


def part(ctx: Context, x: Tensor, start: int, stop: int) -> Tensor:
    """x[start:stop] of a tensor with one dimension."""
    if len(x.shape) != 1 or not 0 <= start <= stop <= x.shape[0]:
        raise ctx.unsupported(f"[{start}:{stop}] of a tensor of shape {list(x.shape)}")
    return Tensor(x.storage, (stop - start,), x.strides, x.offset + start * x.strides[0])


def total(ctx: Context, x: Tensor, *, dim: int) -> Tensor:
    """The sum over a dimension, rounded once at x's format."""
    return _written(ctx, ctx.builder.op("sum", x.read(), axes=(dim % len(x.shape),)), x.dtype)


def to(ctx: Context, x: Tensor, dtype: str) -> Tensor:
    if dtype not in TORCH_FLOATS or x.dtype not in TORCH_FLOATS:
        raise ctx.unsupported(f".to({dtype}) of a tensor of {x.dtype}")
    return x if x.dtype == dtype else _written(ctx, x.read(), dtype)


def size(ctx: Context, x: Tensor, dim: int) -> int:
    return x.shape[dim]


def item(ctx: Context, x: Tensor) -> int:
    """The number of a tensor of one integer: a size that depends on it is what it is on the captured inputs."""
    if not isinstance(x.storage, IntStorage) or int(np.prod(x.shape, dtype=np.int64)) != 1:
        raise ctx.unsupported(f".item() of a tensor of {x.dtype} and shape {list(x.shape)}")
    return int(x.storage.load(x.index()).values.reshape(()))


def zero(ctx: Context, x: Tensor) -> Tensor:
    """zero_(): what kernels count in, their semaphores."""
    if not isinstance(x.storage, IntStorage):
        raise ctx.unsupported(f".zero_() of a tensor of {x.dtype}")
    x.storage.store(x.index(), np.zeros(x.shape, np.int64), dynamic=False)
    return x


def _written(ctx: Context, elements: Elements, dtype: str) -> Tensor:
    made = fresh(elements.shape, dtype)
    made.write(ctx.builder.round(elements, dtype))
    return made


METHODS: dict[str, Callable[..., Any]] = {"view": view, "sum": total, "to": to, "zero_": zero, "size": size, "item": item}
