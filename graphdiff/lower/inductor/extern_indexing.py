"""Fallbacks to ATen that choose elements by integers: data movement, and sums into chosen places.

Sizes that depend on numbers (how many rows a mask keeps) are what they are on the captured inputs.
Meaning of the ops: aten/src/ATen/native/TensorAdvancedIndexing.cpp, cuda/Indexing.cu (torch 2.13).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.memory import add_to_memory
from graphdiff.lower.inductor.values import IntStorage, Tensor, fresh, is_dynamic
from graphdiff.program.builder import Elements, contiguous


def nonzero(ctx: Context, x: Tensor) -> Tensor:
    """int64 [count, x.dim()], laid out column by column as CUDA does."""
    if isinstance(x.storage, IntStorage):
        got = x.storage.load(x.index())
        numbers, dynamic = got.values, got.dynamic
    else:
        elements = x.read()
        numbers, dynamic = ctx.builder.numbers(elements), is_dynamic(ctx.builder, elements)
    found = np.argwhere(numbers)
    storage = IntStorage.of(np.ascontiguousarray(found.T), "int64", dynamic=dynamic)
    return Tensor(storage, found.shape, (1, found.shape[0]))


def index(ctx: Context, x: Tensor, indices: list[Tensor | None]) -> Tensor:
    """x[indices], integers or masks, None for a whole axis. Rows of static memory chosen by tokens are an embedding."""
    key, dynamic = _key(ctx, indices)
    if isinstance(x.storage, IntStorage):
        got = x.storage.load(x.index())
        made = got.values[key]
        return Tensor(IntStorage.of(made, x.dtype, dynamic=got.dynamic or dynamic), made.shape, contiguous(made.shape))
    elements = x.read().map(lambda ids: ids[key])
    if dynamic and not is_dynamic(ctx.builder, elements):
        elements = ctx.builder.op("embedding", elements, dynamic=True)
    return _written(elements, x.dtype)


def index_add(ctx: Context, x: Tensor, dim: int, places: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """A copy of x with source added to its slices along dim; each addition rounds at x's format."""
    if isinstance(x.storage, IntStorage):
        raise ctx.unsupported(f"index_add to {x.dtype} memory")
    made = _written(x.read(), x.dtype)
    at = np.moveaxis(made.index(), dim, 0)[places.storage.load(places.index()).values]
    elements = source.read().map(lambda ids: np.moveaxis(ids, dim, 0).reshape(-1))
    if alpha != 1:
        elements = ctx.builder.op("mul", elements, float(alpha))
    add_to_memory(ctx, made.storage, at.reshape(-1), elements, "index_add")
    return made


def _key(ctx: Context, indices: list[Tensor | None]) -> tuple[tuple[Any, ...], bool]:
    key: list[Any] = []
    dynamic = False
    for one in indices:
        if one is None:
            key.append(slice(None))
            continue
        if not isinstance(one, Tensor) or not isinstance(one.storage, IntStorage):
            raise ctx.unsupported("an index that holds no integers")
        got = one.storage.load(one.index())
        key.append(got.values)
        dynamic = dynamic or got.dynamic
    return tuple(key), dynamic


def _written(elements: Elements, dtype: str) -> Tensor:
    made = fresh(elements.shape, dtype)
    made.write(elements)
    return made
