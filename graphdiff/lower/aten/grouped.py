"""ATen ops that mixtures of experts are made of: how many tokens each expert gets, and a matmul per expert.

Sources (torch 2.13): aten/src/ATen/native/cpu/HistogramKernel.cpp (histc), GroupedMMUtils.h and cuda/GroupedBlas.cpp
(_grouped_mm: on a CPU `_grouped_mm_fallback`, one at::mm_out per group).
"""

from __future__ import annotations

import numpy as np

from graphdiff.lower.aten.arithmetic import argument
from graphdiff.lower.aten.registry import Rule, registrar
from graphdiff.program import Elements
from graphdiff.program.builder import SHIFT

RULES: dict[str, Rule] = {}
rule = registrar(RULES)


@rule("histc")
def _histc(r, func, args, kwargs, out):
    """Counts: whole numbers that the choices of the recorded run made, as a comparison's or an argmax's are."""
    counted = r.builder.operand(r.elements(args[0]))
    dynamic = any(r.builder.program.nodes[n].dynamic for n in counted.nodes)
    return r.builder.const_array(out.detach().float().numpy().copy(), dynamic=dynamic)


@rule("_grouped_mm")
def _grouped_mm(r, func, args, kwargs, out):
    """A product per group, each rounded once as one matmul is. `offs` are where groups end: in the rows of `self` (2D x 3D,
    experts), the columns of `mat2` (3D x 2D) or what is summed over (2D x 2D; a group of nothing is zeros)."""
    a, b = args[:2]
    offs = argument(func, args, kwargs, "offs")
    if offs is None:
        return r.builder.op("mm", r.elements(a), r.elements(b))
    ids = np.full(tuple(out.shape), -1, np.int64)
    start = 0
    for i, end in enumerate(offs.tolist()):
        group = slice(start, end)
        if b.dim() == 3:
            left, right, place = a[group], b[i], group
        elif a.dim() == 3:
            left, right, place = a[i], b[:, group], (slice(None), group)
        else:
            left, right, place = a[:, group], b[group], i
        if ids[place].size:
            nothing = not left.shape[1]
            ids[place] = r.builder.const(0.0).node << SHIFT if nothing else r.builder.op("mm", r.elements(left), r.elements(right)).ids
        start = end
    if (ids < 0).any():
        raise r.refused("its last group ends early: what follows it is memory that nothing has written")
    return Elements(ids.shape, ids=ids)
