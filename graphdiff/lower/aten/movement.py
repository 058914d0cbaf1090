"""ATen ops that only move elements: run again on the element ids instead of the numbers.

What they choose by (indices, masks, the order of a sort or top-k) is taken as it was in the recorded run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves, tree_map

from graphdiff.program import Elements
from graphdiff.program.builder import SHIFT
from graphdiff.program.dtypes import contains, round_to

if TYPE_CHECKING:
    from graphdiff.lower.aten.recorder import Recorder

SAME = frozenset("""
    clone cat stack index index_select gather repeat repeat_interleave flip roll take expand_copy unfold slice_scatter
    select_scatter diagonal_scatter as_strided_scatter index_put _unsafe_index _unsafe_index_put _index_put_impl index_copy
    masked_select masked_scatter unsqueeze_copy view_copy permute_copy transpose_copy slice_copy select_copy
    split_copy unbind_copy narrow_copy t_copy squeeze_copy detach_copy alias_copy _reshape_copy reshape rot90
    _unsafe_view view contiguous lift_fresh lift_fresh_copy lift tile where masked_fill scatter index_fill
    constant_pad_nd pixel_shuffle diag_embed block_diag channel_shuffle reflection_pad1d replication_pad1d
    _reshape_alias resolve_conj_copy set movedim select split split_with_sizes diagonal tril triu
""".split())
ZEROS = frozenset({"tril", "triu", "diag_embed", "block_diag"})
"""Of those, what puts zeros around the elements that it moves."""
DATA = {"where": (1, 2), "masked_fill": (2,), "index_fill": (3,), "scatter": (3,), "constant_pad_nd": (2,), "cat": (0,),
        "stack": (0,), "block_diag": (0,), "slice_scatter": (1,), "select_scatter": (1,), "diagonal_scatter": (1,),
        "as_strided_scatter": (1,)}
"""Places of arguments that are moved even if they are integers or plain numbers (elsewhere those choose what is moved)."""
CREATE = frozenset("""
    full full_like zeros zeros_like ones ones_like new_zeros new_ones new_full arange linspace eye scalar_tensor
    empty empty_like empty_strided new_empty new_empty_strided zero fill triu_indices tensor empty_permuted
    _efficientzerotensor logspace tril_indices
""".split())
EMPTY = frozenset({"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted"})
"""Of those, what makes memory that nobody has written: its numbers are the heap's, and reading them is an error."""
RANDOM = frozenset("rand randn rand_like randn_like randint bernoulli normal uniform random randperm multinomial exponential".split())
CHOSEN = {"topk": 0, "sort": 0, "max": 0, "min": 0, "kthvalue": 0, "median": 0, "mode": 0, "cummax": 0, "cummin": 0}
"""Ops that give (values, indices): the values are a gather by the indices that came out."""


_MOVING = SAME | CREATE | RANDOM | CHOSEN.keys() | {"_to_copy", "copy", "convert_element_type", "embedding"}


def moves(func: Any) -> bool:
    """True if an ATen op moves data or makes new; False if it computes."""
    name = func._overloadpacket.__name__
    return name in _MOVING or name.removesuffix("_") in _MOVING


def apply(r: Recorder, func: Any, base: str, args: tuple, kwargs: dict, out: Any, written: list[torch.Tensor]) -> bool:
    """Record `func` if it moves data; False if it computes."""
    from graphdiff.lower.aten.recorder import is_float

    if base in ("_to_copy", "copy", "convert_element_type"):
        _cast(r, base, args, out, written)
    elif base == "fill" and len(args) > 1 and is_float(args[1]):
        _cast(r, "copy", args, out, written)
    elif base in EMPTY:
        r.unwritten(out)
    elif base in CREATE:
        _created(r, out, written)
    elif base in RANDOM:
        r.remarks.random.append(str(func))
        _created(r, out, written)
    elif base == "embedding":
        _embedding(r, args, out)
    elif base in CHOSEN and isinstance(out, (tuple, list)) and len(out) == 2:
        _chosen(r, base, args, kwargs, out, written)
    elif base in SAME and not _adds(func, base, args, kwargs):
        _same(r, func, base, args, kwargs, out, written)
    else:
        return False
    return True


def _adds(func: Any, base: str, args: tuple, kwargs: dict) -> bool:
    """Writes that combine with what is there are arithmetic (scattered.py): ids cannot be added."""
    if base in ("index_put", "_unsafe_index_put", "_index_put_impl"):
        return bool(kwargs.get("accumulate", args[3] if len(args) > 3 else False))
    return base == "scatter" and func._overloadname in ("reduce", "value_reduce", "reduce_out", "value_reduce_out")


def _ids(r: Recorder, t: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.array(r.elements(t).ids))


def _const_id(r: Recorder, value: float) -> int:
    return r.builder.const(float(value)).node << SHIFT


def _same(r: Recorder, func: Any, base: str, args: tuple, kwargs: dict, out: Any, written: list[torch.Tensor]) -> None:
    """Run the op on element ids; a complex tensor moves in two parts."""
    from graphdiff.lower.aten.recorder import is_float

    tokens = any(isinstance(t, torch.Tensor) and not is_float(t) and r.is_token_int(t) for t in tree_leaves((args, kwargs)))
    targets = written[:1] or [t for t in tree_leaves(out) if is_float(t)]
    data = {func._schema.arguments[i].name for i in DATA.get(base, ())}
    if base == "constant_pad_nd" and len(args) < 3 and kwargs.get("value") is None:
        kwargs = {**kwargs, "value": 0.0}
    parts = [_moved(r, func, base, args, kwargs, data, targets[0], part) for part in ((0, 1) if targets[0].is_complex() else (0,))]
    for t, *ids in zip(targets, *parts):
        x = _anchored(r, torch.stack(ids, -1) if t.is_complex() else ids[0], tokens)
        if written:
            r.write(t, x)
        else:
            r.bind(t, x)


def _moved(r: Recorder, func: Any, base: str, args: tuple, kwargs: dict, data: set[str], target: torch.Tensor, part: int) -> list[torch.Tensor]:
    """The ids (of one part of complex numbers) in each floating-point result."""
    from graphdiff.lower.aten.recorder import is_float

    plain = lambda x: _source(r, x, target, part) if is_float(x) else x  # noqa: E731
    moved = lambda x: _source(r, x, target, part)  # noqa: E731
    names = [a.name for a in func._schema.arguments]
    new_args = [tree_map(moved if name in data else plain, a) for name, a in zip(names, args)]
    new_kwargs = {name: tree_map(moved if name in data else plain, a) for name, a in kwargs.items()}
    ones = [tree_map(lambda x: torch.ones_like(x) if isinstance(x, torch.Tensor) else x, a) for a in new_args]
    results = [x for x in tree_leaves(func(*new_args, **new_kwargs)) if isinstance(x, torch.Tensor)]
    if base in ZEROS:
        kept = func(*ones, **kwargs) != 0
        results = [torch.where(kept, results[0], torch.tensor(_const_id(r, 0.0)))]
    return results


def _source(r: Recorder, a: Any, target: torch.Tensor, part: int) -> Any:
    """Ids of what goes into `target`, in its format: tensors of another one and numbers that it cannot hold are rounded."""
    from graphdiff.lower.aten.recorder import COMPLEX, FLOATS, is_float

    name = COMPLEX.get(target.dtype) or FLOATS[target.dtype]
    if is_float(a):
        x = r.elements(a)
        if a.dtype in COMPLEX:
            x = x.map(lambda ids: ids[..., part])
        elif part:
            x = r.builder.const(0.0).map(lambda ids: np.broadcast_to(ids, x.shape))
        x = x if contains(name, COMPLEX.get(a.dtype) or FLOATS[a.dtype]) else r.builder.round(x, name)
        return torch.from_numpy(np.array(x.ids))
    if isinstance(a, torch.Tensor):
        if part:
            return torch.full(a.shape, _const_id(r, 0.0))
        numbers = a.detach().double().numpy()
        x = r.of(a)
        return torch.from_numpy(np.array((x if np.array_equal(round_to(numbers, name), numbers) else r.builder.round(x, name)).ids))
    if isinstance(a, (int, float, complex)):
        number = (a.imag, a.real)[part == 0]
        x = r.builder.const(float(number))
        exact = np.array_equal(round_to(np.float32(number)[None], name), np.float32(number)[None], equal_nan=True)
        return int((x if exact else r.builder.round(x, name)).ids)
    return a


def _anchored(r: Recorder, ids: torch.Tensor, tokens: bool) -> Elements:
    """Rows taken from a static table by token ids are an embedding: an anchor that depends on the tokens."""
    x = Elements(tuple(ids.shape), ids=ids.numpy())
    if tokens and ids.numel():
        owners = np.unique(x.ids >> SHIFT)
        if not any(r.builder.program.nodes[int(n)].dynamic for n in owners) and \
                any(r.builder.program.nodes[int(n)].op == "leaf" for n in owners):
            return r.builder.op("embedding", x, dynamic=True)
    return x


def _cast(r: Recorder, base: str, args: tuple, out: Any, written: list[torch.Tensor]) -> None:
    """Casts and copies: the value moves, then rounds to the target's format (a widening cast rounds nothing)."""
    from graphdiff.lower.aten.recorder import COMPLEX, is_float

    source = args[1] if base == "copy" else args[0]
    target = written[0] if written else out
    if not is_float(target):
        return
    x = r.of(source)
    if isinstance(x, float):
        x = r.builder.const(x)
    if is_float(source) and source.dtype in COMPLEX and target.dtype not in COMPLEX:
        x = x.map(lambda ids: ids[..., 0])  # as torch: the imaginary part is dropped
    if target.dtype in COMPLEX and not (is_float(source) and source.dtype in COMPLEX):
        zero = _const_id(r, 0.0)
        x = x.map(lambda ids: np.stack([ids, np.full_like(ids, zero)], -1))
    narrower = not is_float(source) or source.dtype != target.dtype
    x = r.rounded(x, target) if narrower else x
    if written:
        r.write(target, x)
    else:
        r.bind(target, x)


def _created(r: Recorder, out: Any, written: list[torch.Tensor]) -> None:
    """Constants: the numbers that came out."""
    from graphdiff.lower.aten.recorder import is_float

    for t in written or [t for t in tree_leaves(out) if is_float(t)]:
        numbers = torch.view_as_real(t.detach()) if t.is_complex() else t.detach()
        # A copy: what is written into the tensor later must not reach the constant.
        x = r.builder.const_array(numbers.to(torch.float64 if t.dtype == torch.float64 else torch.float32, copy=True).numpy())
        if written:
            r.write(t, x)
        else:
            r.bind(t, x)


def _embedding(r: Recorder, args: tuple, out: torch.Tensor) -> None:
    """aten.embedding(weight [V, D], indices): rows of a table that may be too big to follow whole."""
    weight, indices = args[0], args[1].detach().numpy().astype(np.int64)
    table = r.elements(weight)
    width = table.shape[1]
    if table.is_affine and table.strides == (width, 1):
        ids = (table.node << SHIFT) + table.offset + indices[..., None] * width + np.arange(width)
    else:
        ids = table.ids[indices]
    x = Elements(ids.shape, ids=ids)
    r.bind(out, r.builder.op("embedding", x, dynamic=True))


def _chosen(r: Recorder, base: str, args: tuple, kwargs: dict, out: Any, written: list[torch.Tensor]) -> None:
    from graphdiff.lower.aten.recorder import is_float

    values, indices = out
    if not is_float(values):
        return
    place = {"topk": 2, "kthvalue": 2, "sort": 1, "max": 1, "min": 1, "median": 1, "mode": 1, "cummax": 1, "cummin": 1}[base]
    dim = kwargs.get("dim", args[place] if len(args) > place and isinstance(args[place], int) and not isinstance(args[place], bool) else -1)
    ids = _ids(r, args[0])
    if indices.dim() < ids.dim():
        taken = torch.gather(ids, dim, indices.unsqueeze(dim)).squeeze(dim)
    else:
        taken = torch.gather(ids, dim, indices)
    (r.write if written else r.bind)(values, Elements(tuple(taken.shape), ids=taken.numpy()))
