"""ATen ops whose formula has cases: which one an element takes is read from the recorded run's numbers.

Sources (torch 2.13, aten/src/ATen/native): cpu/BinaryOpsKernel.cpp (xlogy, logaddexp, fmax, fmin, div_floor),
cpu/UnaryOpsKernel.cpp (logit, entr), Math.h (xlog1py), cpu/Activation.cpp and Activation.cpp (elu, celu, selu),
cpu/ReduceOpsKernel.cpp (nansum), cpu/ReduceOpsKernel.cpp and SharedReduceOps.h (norms), LossNLL.cpp.
"""

from __future__ import annotations

import math

import numpy as np

from graphdiff.lower.aten.arithmetic import argument, axes_of, chosen, reduce
from graphdiff.lower.aten.registry import Rule, registrar
from graphdiff.program import Elements
from graphdiff.program.builder import SHIFT

RULES: dict[str, Rule] = {}
rule = registrar(RULES)


@rule("fmax", "fmin")
def _fmax(r, func, args, kwargs, out):
    """The one that is a number, if only one is."""
    op = "maximum" if func._overloadpacket.__name__ == "fmax" else "minimum"
    x, y = (r.of(a) for a in args[:2])
    both = r.builder.op(op, x, y)
    nan_x, nan_y = (np.broadcast_to(np.isnan(r.seen(a)), both.shape) for a in args[:2])
    return chosen(r, nan_x, y, chosen(r, nan_y, x, both))


@rule("floor_divide")
def _floor_divide(r, func, args, kwargs, out):
    """(a - fmod(a, b)) / b, corrected (c10/util/generic_math.h div_floor_floating): floor(a / b) may be one more."""
    return r.builder.op("floor_divide", r.of(args[0]), r.of(args[1]))


@rule("xlogy", "special_xlog1py")
def _xlogy(r, func, args, kwargs, out):
    """0 where x is 0, NaN where y is NaN, whatever the other is."""
    x, y, b = r.of(args[0]), r.of(args[1]), r.builder
    product = b.op("mul", x, b.op("log1p" if func._overloadpacket.__name__.rstrip("_") == "special_xlog1py" else "log", y))
    zero = (r.seen(args[0]) == 0) & ~np.isnan(r.seen(args[1]))
    return chosen(r, np.broadcast_to(zero, product.shape), 0.0, product)


@rule("special_entr")
def _entr(r, func, args, kwargs, out):
    x, number, b = r.of(args[0]), r.seen(args[0]), r.builder
    y = chosen(r, number == 0, 0.0, b.op("mul", b.op("neg", x), b.op("log", x)))
    return chosen(r, number < 0, -math.inf, y)


@rule("logaddexp")
def _logaddexp(r, func, args, kwargs, out):
    """max + log1p(exp(-|x - y|)); two equal infinities are that infinity."""
    x, y, b = r.of(args[0]), r.of(args[1]), r.builder
    tail = b.op("log1p", b.op("exp", b.op("neg", b.op("abs", b.op("sub", x, y)))))
    z = b.op("add", b.op("maximum", x, y), tail)
    a, c = r.seen(args[0]), r.seen(args[1])
    return chosen(r, np.broadcast_to(np.isinf(a) & (a == c), z.shape), x, z)


@rule("logit")
def _logit(r, func, args, kwargs, out):
    x, b = r.of(args[0]), r.builder
    eps = argument(func, args, kwargs, "eps")
    if eps is not None and eps >= 0:
        x = b.op("minimum", b.op("maximum", x, float(eps)), float(np.float32(1) - np.float32(eps)))
    return b.op("log", b.op("div", x, b.op("sub", 1.0, x)))


@rule("elu", "celu", "selu")
def _elu(r, func, args, kwargs, out):
    """scale * (x > 0 ? x : alpha * expm1(x * input_scale)); celu and selu are elu with other numbers (Activation.cpp)."""
    alpha, scale, inner = (float(argument(func, args, kwargs, n, 1)) for n in ("alpha", "scale", "input_scale"))
    name = func._overloadpacket.__name__.rstrip("_")
    if name == "celu":
        inner = 1 / alpha
    elif name == "selu":
        alpha, scale = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
    x, b = r.of(args[0]), r.builder
    negative = b.op("mul", b.op("expm1", b.op("mul", x, inner) if inner != 1 else x), alpha * scale)
    return chosen(r, r.seen(args[0]) > 0, b.op("mul", x, scale) if scale != 1 else x, negative)


@rule("nansum")
def _nansum(r, func, args, kwargs, out):
    x = chosen(r, np.isnan(r.seen(args[0])), 0.0, r.of(args[0]))
    if kwargs.get("dtype") is not None:
        x = r.as_type(x, kwargs["dtype"])
    return reduce(r, "sum", x, axes_of(args[0], argument(func, args, kwargs, "dim")), bool(argument(func, args, kwargs, "keepdim", False)))


@rule("linalg_vector_norm", "norm")
def _norm(r, func, args, kwargs, out):
    order = argument(func, args, kwargs, "ord" if func._overloadpacket.__name__.startswith("linalg") else "p")
    order = 2.0 if order is None else float(order)
    x, b = r.of(args[0]), r.builder
    if argument(func, args, kwargs, "dtype") is not None:
        x = r.as_type(x, argument(func, args, kwargs, "dtype"))
    axes, keep = axes_of(args[0], argument(func, args, kwargs, "dim")), bool(argument(func, args, kwargs, "keepdim", False))
    if order == 0:
        return reduce(r, "sum", b.const_array((r.seen(args[0]) != 0).astype(np.float32), dynamic=True), axes, keep)
    size = b.op("abs", x)
    if order == 1:
        return reduce(r, "sum", size, axes, keep)
    if math.isinf(order):
        return reduce(r, "amax" if order > 0 else "amin", size, axes, keep)
    total = reduce(r, "sum", b.op("mul", x, x) if order == 2 else b.op("pow", size, order), axes, keep)
    return b.op("sqrt", total) if order == 2 else b.op("pow", total, 1.0 / order)


@rule("nll_loss_forward")
def _nll(r, func, args, kwargs, out):
    """The mean is over the weights of the targets that count; a target's loss is -weight * its log probability."""
    logp, target, weight, b = r.elements(args[0]), args[1].numpy().reshape(-1), args[2], r.builder
    kept = np.flatnonzero(target != args[4])
    picked = Elements((kept.size,), ids=logp.ids.reshape(-1, logp.shape[-1])[kept, target[kept]])
    loss, total_weight = b.op("neg", picked), float(kept.size)
    if weight is not None:
        of_target = Elements((kept.size,), ids=r.of(weight).ids[target[kept]])
        loss, total_weight = b.op("mul", loss, of_target), b.op("sum", of_target, shape=(), axes=[0])
    if args[3] == 0:
        full = np.full(target.size, b.const(0.0).node << SHIFT, np.int64)
        full[kept] = loss.ids
        return Elements(tuple(out[0].shape), ids=full.reshape(out[0].shape)), None
    total = b.op("sum", loss, axes=[0])
    return (b.op("div", total, total_weight) if args[3] == 1 else total), None
