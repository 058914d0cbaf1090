"""Complex ATen ops: two real parts per element (a trailing dimension of 2). What has no rule here is refused.

Sources (torch 2.13): c10/util/complex.h and ATen/cpu/vec/vec_complex_float.h (products, quotients), native/ComplexHelper.h.
Quotients are scaled there against overflow; the formula here is the one without scales.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphdiff.lower.aten.arithmetic import argument, axes_of, hypot, reduce
from graphdiff.program import Elements

if TYPE_CHECKING:
    from graphdiff.lower.aten.recorder import Recorder

Parts = tuple[Any, Any]
"""Real and imaginary part: Elements or numbers; None for an imaginary part that is not there."""


def parts(r: Recorder, a: Any) -> Parts:
    if isinstance(a, torch.Tensor) and a.is_complex():
        x = r.of(a)
        return x.map(lambda ids: ids[..., 0]), x.map(lambda ids: ids[..., 1])
    if isinstance(a, complex):
        return float(a.real), float(a.imag)
    return r.of(a), None


def joined(r: Recorder, re: Any, im: Any) -> Elements:
    b = r.builder
    ids = [(b.const(x) if isinstance(x, float) else x).ids for x in (re, 0.0 if im is None else im)]
    return Elements((*np.broadcast_shapes(*(i.shape for i in ids)), 2), ids=np.stack(np.broadcast_arrays(*ids), -1))


def _sum(r: Recorder, op: str, x: Any, y: Any) -> Any:
    """x + y or x - y where either may be missing."""
    if y is None:
        return x
    return (r.builder.op("neg", y) if op == "sub" else y) if x is None else r.builder.op(op, x, y)


def product(r: Recorder, x: Parts, y: Parts, op: str = "mul") -> Parts:
    """(a + ib)(c + id), as four products; a real factor is two. op "mm" gives a matrix product."""
    b = r.builder
    if x[1] is None or y[1] is None:
        (re, im), real = (x, y[0]) if y[1] is None else (y, x[0])
        return b.op(op, re, real), None if im is None else b.op(op, im, real)
    return (b.op("sub", b.op(op, x[0], y[0]), b.op(op, x[1], y[1])), b.op("add", b.op(op, x[0], y[1]), b.op(op, x[1], y[0])))


def quotient(r: Recorder, x: Parts, y: Parts) -> Parts:
    b = r.builder
    if y[1] is None:
        return b.op("div", x[0], y[0]), None if x[1] is None else b.op("div", x[1], y[0])
    re, im = product(r, x, (y[0], b.op("neg", y[1])))
    size = b.op("add", b.op("mul", y[0], y[0]), b.op("mul", y[1], y[1]))
    return b.op("div", re, size), b.op("div", im, size)


def _add(r, func, args, kwargs, out):
    name = func._overloadpacket.__name__
    x, y = (args[1], args[0]) if name == "rsub" else args[:2]
    alpha = argument(func, args, kwargs, "alpha")
    x, y = parts(r, x), parts(r, y)
    if alpha not in (None, 1):
        y = product(r, y, parts(r, alpha))
    op = "add" if name.startswith("add") else "sub"
    return joined(r, *(_sum(r, op, p, q) for p, q in zip(x, y)))


def _mul(r, func, args, kwargs, out):
    return joined(r, *product(r, parts(r, args[0]), parts(r, args[1])))


def _div(r, func, args, kwargs, out):
    return joined(r, *quotient(r, parts(r, args[0]), parts(r, args[1])))


def _reciprocal(r, func, args, kwargs, out):
    return joined(r, *quotient(r, (1.0, None), parts(r, args[0])))


def _square(r, func, args, kwargs, out):
    x = parts(r, args[0])
    return joined(r, *product(r, x, x))


def _pow(r, func, args, kwargs, out):
    if isinstance(args[1], torch.Tensor) or args[1] != 2:
        raise r.refused("complex powers other than 2")
    return _square(r, func, args, kwargs, out)


def _exp(r, func, args, kwargs, out):
    (re, im), b = parts(r, args[0]), r.builder
    size = b.op("exp", re)
    return joined(r, b.op("mul", size, b.op("cos", im)), b.op("mul", size, b.op("sin", im)))


def _abs(r, func, args, kwargs, out):
    z = r.read(args[0])
    return hypot(r, *parts(r, args[0]), r.seen(z.real), r.seen(z.imag))


def _angle(r, func, args, kwargs, out):
    re, im = parts(r, args[0])
    return r.builder.op("atan2", im, re)


def _neg(r, func, args, kwargs, out):
    return r.builder.op("neg", r.of(args[0]))


def _conj(r, func, args, kwargs, out):
    re, im = parts(r, args[0])
    return joined(r, re, r.builder.op("neg", im))


def _reduction(r, func, args, kwargs, out):
    if kwargs.get("dtype") not in (None, args[0].dtype):
        raise r.refused("complex sums with a dtype")
    axes, keep = axes_of(args[0], argument(func, args, kwargs, "dim")), bool(argument(func, args, kwargs, "keepdim", False))
    y = reduce(r, "sum", r.of(args[0]), axes, keep)
    if func._overloadpacket.__name__ == "mean":
        y = r.builder.op("div", y, float(np.prod([args[0].shape[a] for a in axes])))
    return y


def _mm(r, func, args, kwargs, out):
    return joined(r, *product(r, parts(r, args[0]), parts(r, args[1]), "mm"))


def _polar(r, func, args, kwargs, out):
    size, angle = r.of(args[0]), r.of(args[1])
    return joined(r, *(r.builder.op("mul", size, r.builder.op(f, angle)) for f in ("cos", "sin")))


def _complex(r, func, args, kwargs, out):
    return joined(r, r.of(args[0]), r.of(args[1]))


RULES: dict[str, Any] = {
    "add": _add, "sub": _add, "rsub": _add, "mul": _mul, "div": _div, "true_divide": _div, "reciprocal": _reciprocal,
    "square": _square, "pow": _pow, "exp": _exp, "abs": _abs, "angle": _angle, "neg": _neg, "conj_physical": _conj,
    "_conj_physical": _conj, "sum": _reduction, "mean": _reduction, "mm": _mm, "bmm": _mm, "polar": _polar, "complex": _complex,
}
