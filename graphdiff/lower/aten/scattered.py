"""Writes that combine with what is there: index_add, scatter_add, index_put(accumulate=True), scatter(reduce=).

Sources (torch 2.13, aten/src/ATen/native): cpu/IndexKernel.cpp, TensorAdvancedIndexing.cpp, cpu/ScatterGatherKernel.cpp
(an opmath buffer: one rounding per call).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphdiff.program import Elements
from graphdiff.program.builder import SHIFT

if TYPE_CHECKING:
    from graphdiff.lower.aten.recorder import Recorder


def _rounds_each(name: str, base: torch.Tensor, args: tuple, kwargs: dict) -> bool:
    """True if every addition is stored in the tensor's own format: index_put (cpu/IndexKernel.cpp index_put_kernel; CUDA
    stores between additions too, cuda/Indexing.cu), and index_add where it does not become a scatter (index_add_cpu_)."""
    if name == "index_add":
        return base.dim() == 1 or kwargs.get("alpha", 1) != 1 or base.dim() > 2 and args[1] % base.dim() != 0
    return name in ("index_put", "_unsafe_index_put", "_index_put_impl")


def _index_add(r, func, args, kwargs, out):
    """Rows that receive several additions receive them in order; one rounding per call (measured on CPU, torch 2.13)."""
    name = func._overloadpacket.__name__.rstrip("_")
    base = args[0]
    each = _rounds_each(name, base, args, kwargs)
    target, source = _places(r, name, args, kwargs)
    op = "mul" if kwargs.get("reduce") == "multiply" else "add"
    flat = np.array(r.elements(base).ids).reshape(-1)
    values = np.broadcast_to(source.ids, target.shape).reshape(-1)
    place = target.reshape(-1)
    order = np.argsort(place, kind="stable")
    rank = np.empty(place.size, np.int64)
    sorted_places = place[order]
    first = np.concatenate(([0], np.flatnonzero(np.diff(sorted_places)) + 1)) if place.size else np.zeros(0, np.int64)
    starts = np.repeat(first, np.diff(np.append(first, place.size)))
    rank[order] = np.arange(place.size) - starts
    for turn in range(int(rank.max()) + 1 if rank.size else 0):
        now = np.flatnonzero(rank == turn)
        term = Elements((now.size,), ids=values[now])
        there = Elements((now.size,), ids=flat[place[now]])
        flat[place[now]] = _combined(r, op, there, term).ids
        if each:
            flat[place[now]] = r.rounded(Elements((now.size,), ids=flat[place[now]]), base).ids
    touched = np.unique(place)
    if touched.size and not each:
        flat[touched] = r.rounded(Elements((touched.size,), ids=flat[touched]), base).ids
    return Elements(tuple(base.shape), ids=flat.reshape(base.shape))


def _combined(r: Recorder, op: str, there: Elements, term: Elements) -> Elements:
    """What is added to a zero that was filled in is that itself, element by element (as Builder.op has it of whole tensors)."""
    empty = there.ids == r.builder.const(0.0).node << SHIFT
    if op != "add" or not empty.any():
        return r.builder.op(op, there, term)
    ids = term.ids.copy()
    kept = np.flatnonzero(~empty)
    if kept.size:
        ids[kept] = r.builder.op(op, there.map(lambda i: i[kept]), term.map(lambda i: i[kept])).ids
    return Elements(ids.shape, ids=ids)


def _places(r: Recorder, name: str, args: tuple, kwargs: dict) -> tuple[np.ndarray, Elements]:
    """Element numbers of the output each element of the source is added to, and the source."""
    base = args[0]
    numbers = torch.arange(base.numel()).reshape(base.shape)
    if name == "index_add":
        dim, index, source = args[1], args[2], args[3]
        value = r.of(source)
        alpha = kwargs.get("alpha", 1)
        return numbers.index_select(dim, index).numpy(), value if alpha == 1 else r.builder.op("mul", value, float(alpha))
    if name in ("scatter_add", "scatter"):
        dim, index, source = args[1], args[2], args[3]
        part = r.of(source).map(lambda ids: ids[tuple(slice(0, n) for n in index.shape)]) if isinstance(source, torch.Tensor) \
            else r.rounded(r.builder.const(float(source)), base)
        return _corner(numbers, dim, index).gather(dim, index).numpy(), part
    return numbers[tuple(slice(None) if i is None else i for i in args[1])].numpy(), r.of(args[2])


def _corner(numbers: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """The part of the output that an index of fewer rows can reach (gather wants the sizes to agree)."""
    return numbers[tuple(slice(None) if i == dim % max(1, numbers.dim()) else slice(0, n) for i, n in enumerate(index.shape))]


RULES: dict[str, Any] = dict.fromkeys(
    ("index_add", "scatter_add", "index_put", "_unsafe_index_put", "_index_put_impl", "scatter"), _index_add)
