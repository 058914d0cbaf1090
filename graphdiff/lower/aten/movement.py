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

if TYPE_CHECKING:
    from graphdiff.lower.aten.recorder import Recorder

SAME = frozenset("""
    clone cat stack index index_select gather repeat repeat_interleave flip roll take expand_copy unfold slice_scatter
    select_scatter diagonal_scatter as_strided_scatter index_put _unsafe_index _unsafe_index_put index_copy
    masked_select masked_scatter unsqueeze_copy view_copy permute_copy transpose_copy slice_copy select_copy
    split_copy unbind_copy narrow_copy t_copy squeeze_copy detach_copy alias_copy _reshape_copy reshape rot90
    _unsafe_view view contiguous lift_fresh lift_fresh_copy lift tile where masked_fill scatter index_fill
    constant_pad_nd pixel_shuffle diag_embed block_diag channel_shuffle reflection_pad1d replication_pad1d
    _reshape_alias resolve_conj_copy set movedim select split split_with_sizes diagonal
""".split())
FILL = {"masked_fill": ("value", 2), "scatter": ("value", 3), "index_fill": ("value", 3), "constant_pad_nd": ("value", 2)}
"""Ops with a number to fill in: argument name and position."""
CREATE = frozenset("""
    full full_like zeros zeros_like ones ones_like new_zeros new_ones new_full arange linspace eye scalar_tensor
    empty empty_like empty_strided new_empty new_empty_strided zero fill triu_indices tensor empty_permuted
    _efficientzerotensor logspace tril_indices
""".split())
RANDOM = frozenset("rand randn rand_like randn_like randint bernoulli normal uniform random randperm multinomial exponential".split())
CHOSEN = {"topk": 0, "sort": 0, "max": 0, "min": 0, "kthvalue": 0, "median": 0, "mode": 0, "cummax": 0, "cummin": 0}
"""Ops that give (values, indices): the values are a gather by the indices that came out."""


def apply(r: Recorder, func: Any, base: str, args: tuple, kwargs: dict, out: Any, written: list[torch.Tensor]) -> bool:
    """Record `func` if it moves data; False if it computes."""
    if base in ("_to_copy", "copy", "convert_element_type"):
        _cast(r, base, args, out, written)
    elif base in CREATE:
        _created(r, out, written)
    elif base in RANDOM:
        r.random_ops.append(str(func))
        _created(r, out, written)
    elif base == "embedding":
        _embedding(r, args, out)
    elif base in ("tril", "triu"):
        _triangle(r, func, args, kwargs, out, written)
    elif base in CHOSEN and isinstance(out, (tuple, list)) and len(out) == 2:
        _chosen(r, base, args, kwargs, out)
    elif base in SAME:
        _same(r, func, base, args, kwargs, out, written)
    else:
        return False
    return True


def _ids(r: Recorder, t: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(np.array(r.elements(t).ids))


def _const_id(r: Recorder, value: float) -> int:
    return r.builder.const(float(value)).node << SHIFT


def _same(r: Recorder, func: Any, base: str, args: tuple, kwargs: dict, out: Any, written: list[torch.Tensor]) -> None:
    from graphdiff.lower.aten.recorder import COMPLEX, is_float

    if any(t.dtype in COMPLEX for t in tree_leaves((args, kwargs, out)) if isinstance(t, torch.Tensor)):
        _same_complex(r, func, args, kwargs, out, written)
        return
    tokens = any(isinstance(t, torch.Tensor) and not is_float(t) and r.is_token_int(t) for t in tree_leaves((args, kwargs)))
    to_ids = lambda x: _ids(r, x) if is_float(x) else x  # noqa: E731
    new_args, new_kwargs = list(tree_map(to_ids, args)), dict(tree_map(to_ids, kwargs))
    if base == "where":
        new_args = [a if i == 0 or isinstance(a, torch.Tensor) and a.dtype == torch.int64 and is_float(args[i])
                    else _where_value(r, a) for i, a in enumerate(new_args)]
    elif base in FILL:
        name, place = FILL[base]
        _fill(r, new_args, new_kwargs, name, place, base)
    mixed = [i for i, a in enumerate(tree_leaves(args)) if isinstance(a, torch.Tensor)]
    if base in ("cat", "stack") and mixed:
        new_args[0] = [x if is_float(y) else torch.from_numpy(np.array(r.of(y).ids)) for x, y in zip(new_args[0], args[0])]
    moved = func(*new_args, **new_kwargs)
    if written:
        r.write(written[0], _anchored(r, new_args[0], tokens))
        return
    outputs = [t for t in tree_leaves(out) if isinstance(t, torch.Tensor)]
    for t, ids in zip(outputs, [x for x in tree_leaves(moved) if isinstance(x, torch.Tensor)]):
        if is_float(t):
            x = _anchored(r, ids, tokens)
            r.bind(t, _narrowed(r, x, t, args))


def _narrowed(r: Recorder, x: Elements, t: torch.Tensor, args: tuple) -> Elements:
    """Where promotes; writing wide into narrow rounds (index_put, scatter of float32 into bfloat16 do not mix dtypes)."""
    from graphdiff.lower.aten.recorder import is_float

    if any(is_float(a) and a.element_size() > t.element_size() for a in tree_leaves(args)):
        return r.rounded(x, t)
    return x


def _anchored(r: Recorder, ids: torch.Tensor, tokens: bool) -> Elements:
    """Rows taken from a static table by token ids are an embedding: an anchor that depends on the tokens."""
    x = Elements(tuple(ids.shape), ids=ids.numpy())
    if tokens and ids.numel():
        owners = np.unique(x.ids >> SHIFT)
        if not any(r.builder.program.nodes[int(n)].dynamic for n in owners) and \
                any(r.builder.program.nodes[int(n)].op == "leaf" for n in owners):
            return r.builder.op("embedding", x, dynamic=True)
    return x


def _where_value(r: Recorder, a: Any) -> torch.Tensor:
    if isinstance(a, torch.Tensor):
        return torch.from_numpy(np.array(r.of(a).ids))
    return torch.tensor(_const_id(r, a))


def _fill(r: Recorder, args: list, kwargs: dict, name: str, place: int, base: str) -> None:
    if name in kwargs:
        if not isinstance(kwargs[name], torch.Tensor):
            kwargs[name] = _const_id(r, kwargs[name])
    elif place < len(args):
        if not isinstance(args[place], torch.Tensor):
            args[place] = _const_id(r, args[place])
    elif base == "constant_pad_nd":
        args.append(_const_id(r, 0.0))


def _same_complex(r: Recorder, func: Any, args: tuple, kwargs: dict, out: Any, written: list[torch.Tensor]) -> None:
    """Complex tensors move in pairs: run the op once per part."""
    from graphdiff.lower.aten.recorder import COMPLEX, is_float

    parts = []
    for part in (0, 1):
        pick = lambda x: (torch.from_numpy(np.array(r.elements(x).ids[..., part])) if is_float(x) and x.dtype in COMPLEX  # noqa: E731
                          else _ids(r, x) if is_float(x) else x)
        parts.append(func(*tree_map(pick, args), **tree_map(pick, kwargs)))
    ids = torch.stack([parts[0], parts[1]], -1)
    r.bind(out, Elements(tuple(ids.shape), ids=ids.numpy()))


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
        x = r.builder.const_array(numbers.double().numpy() if t.dtype == torch.float64 else numbers.float().numpy())
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


def _triangle(r: Recorder, func: Any, args: tuple, kwargs: dict, out: Any, written: list[torch.Tensor]) -> None:
    ids = _ids(r, args[0])
    keep = func(torch.ones_like(ids), *args[1:], **kwargs) != 0
    x = Elements(tuple(ids.shape), ids=torch.where(keep, ids, torch.tensor(_const_id(r, 0.0))).numpy())
    if written:
        r.write(written[0], x)
    else:
        r.bind(out, x)


def _chosen(r: Recorder, base: str, args: tuple, kwargs: dict, out: Any) -> None:
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
    r.bind(values, Elements(tuple(taken.shape), ids=taken.numpy()))
