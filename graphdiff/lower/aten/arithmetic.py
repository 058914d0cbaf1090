"""ATen ops that compute, one by one: which primitives each is.

A rule takes (recorder, func, args, kwargs, out) and returns the unrounded result(s) as Elements; the recorder adds the
one rounding at the op's output (an eager CPU or CUDA kernel upcasts to float32, computes, and stores: opmath_t in
aten/src/ATen/native, torch 2.13).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphdiff.lower.aten.promotion import in_format
from graphdiff.lower.aten.registry import Rule, registrar
from graphdiff.program import Elements
from graphdiff.program.builder import SHIFT

if TYPE_CHECKING:
    from graphdiff.lower.aten.recorder import Recorder

RULES: dict[str, Rule] = {}
rule = registrar(RULES)


def argument(func: Any, args: tuple, kwargs: dict, name: str, default: Any = None) -> Any:
    """An argument of an ATen call by its schema name."""
    for i, a in enumerate(func._schema.arguments):
        if a.name == name:
            if name in kwargs:
                return kwargs[name]
            return args[i] if i < len(args) and not a.kwarg_only else (a.default_value if a.has_default_value() else default)
    return default


for _name in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "tanh",
              "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "lgamma", "floor", "ceil", "trunc", "neg",
              "abs", "sign", "reciprocal"):
    RULES[_name] = lambda r, func, args, kwargs, out, op=_name: (
        r.builder.op("div", 1.0, r.of(args[0])) if op == "reciprocal" else r.builder.op(op, r.of(args[0])))
RULES["sgn"] = RULES["sign"]
for _name in ("maximum", "minimum", "atan2", "copysign"):
    RULES[_name] = lambda r, func, args, kwargs, out, op=_name: r.builder.op(op, r.of(args[0]), r.of(args[1]))
for _name in ("fmod", "remainder"):
    RULES[_name] = lambda r, func, args, kwargs, out, op=_name: r.builder.op(op, in_format(r, args[0], out), in_format(r, args[1], out))


@rule("round")
def _round(r, func, args, kwargs, out):
    if argument(func, args, kwargs, "decimals", 0):
        raise r.refused("with decimals")
    return r.builder.op("nearest", r.of(args[0]))


@rule("frac")
def _frac(r, func, args, kwargs, out):
    return r.builder.op("sub", r.of(args[0]), r.builder.op("trunc", r.of(args[0])))


def _scaled(r: Recorder, x: Elements | float, alpha: Any) -> Elements | float:
    return x if alpha in (None, 1) else r.builder.op("mul", x, float(alpha))


@rule("add", "sub")
def _add(r, func, args, kwargs, out):
    op = "add" if func._overloadpacket.__name__.startswith("add") else "sub"
    x, y = r.of(args[0]), r.of(args[1])
    return r.builder.op(op, x, _scaled(r, y, argument(func, args, kwargs, "alpha")))


@rule("rsub")
def _rsub(r, func, args, kwargs, out):
    x, y = r.of(args[0]), r.of(args[1])
    return r.builder.op("sub", y, _scaled(r, x, argument(func, args, kwargs, "alpha")))


@rule("mul")
def _mul(r, func, args, kwargs, out):
    return r.builder.op("mul", r.of(args[0]), r.of(args[1]))


@rule("div", "true_divide", "divide")
def _div(r, func, args, kwargs, out):
    """Rounded down it is not floor of the quotient but what remains after fmod (c10/util/generic_math.h); truncated it is
    the quotient in the tensor's own format that is (cpu/BinaryOpsKernel.cpp div_trunc_kernel, cuda/BinaryDivTruncKernel.cu)."""
    mode = kwargs.get("rounding_mode")
    x = r.builder.op("floor_divide" if mode == "floor" else "div", r.of(args[0]), r.of(args[1]))
    return r.builder.op("trunc", r.rounded(x, out)) if mode == "trunc" else x


@rule("pow", "float_power")
def _pow(r, func, args, kwargs, out):
    """x**3 is two products in the tensor's own type (native/cpu/PowKernel.cpp, cuda/PowKernel.cu), each rounded; so is
    the product in x**-2, and a base or exponent that is a number."""
    base, exponent = args[:2]
    b = r.builder
    if isinstance(exponent, (int, float)):
        x = r.of(base)
        special = {1: lambda: x, 2: lambda: b.op("mul", x, x), 3: lambda: b.op("mul", r.rounded(b.op("mul", x, x), out), x),
                   0.5: lambda: b.op("sqrt", x), -0.5: lambda: b.op("rsqrt", x), -1: lambda: b.op("div", 1.0, x),
                   -2: lambda: b.op("div", 1.0, r.rounded(b.op("mul", x, x), out))}
        if exponent in special:
            return special[exponent]()
    return b.op("pow", in_format(r, base, out), in_format(r, exponent, out))


@rule("square")
def _square(r, func, args, kwargs, out):
    x = r.of(args[0])
    return r.builder.op("mul", x, x)


@rule("addcmul")
def _addcmul(r, func, args, kwargs, out):
    product = r.builder.op("mul", r.of(args[1]), r.of(args[2]))
    return r.builder.op("add", r.of(args[0]), _scaled(r, product, kwargs.get("value")))


@rule("addcdiv")
def _addcdiv(r, func, args, kwargs, out):
    quotient = r.builder.op("div", r.of(args[1]), r.of(args[2]))
    return r.builder.op("add", r.of(args[0]), _scaled(r, quotient, kwargs.get("value")))


@rule("lerp")
def _lerp(r, func, args, kwargs, out):
    start, end, weight = (r.of(a) for a in args[:3])
    return r.builder.op("add", start, r.builder.op("mul", weight, r.builder.op("sub", end, start)))


@rule("clamp", "clip", "hardtanh", "clamp_min", "clamp_max", "relu6")
def _clamp(r, func, args, kwargs, out):
    name = func._overloadpacket.__name__.rstrip("_")
    low, high = {
        "clamp_min": lambda: (args[1], None), "clamp_max": lambda: (None, args[1]), "relu6": lambda: (0.0, 6.0),
        "hardtanh": lambda: (argument(func, args, kwargs, "min_val"), argument(func, args, kwargs, "max_val")),
    }.get(name, lambda: (argument(func, args, kwargs, "min"), argument(func, args, kwargs, "max")))()
    x = r.of(args[0])
    if low is not None:
        x = r.builder.op("maximum", x, r.of(low))
    return x if high is None else r.builder.op("minimum", x, r.of(high))


@rule("relu")
def _relu(r, func, args, kwargs, out):
    return r.builder.op("maximum", r.of(args[0]), 0.0)


@rule("nan_to_num")
def _nan_to_num(r, func, args, kwargs, out):
    """Infinities become the largest numbers of the format if nothing else is given (native/UnaryOps.cpp nan_to_num_out)."""
    largest = torch.finfo(args[0].dtype).max
    given = {name: argument(func, args, kwargs, name) for name in ("nan", "posinf", "neginf")}
    nan, top, bottom = (default if number is None else float(number) for number, default in zip(given.values(), (0.0, largest, -largest)))
    x, numbers = r.of(args[0]), r.seen(args[0])
    x = chosen(r, numbers == math.inf, top, chosen(r, numbers == -math.inf, bottom, x))
    return chosen(r, np.isnan(numbers), nan, x)


@rule("threshold", "leaky_relu", "prelu", "_prelu_kernel")
def _threshold(r, func, args, kwargs, out):
    x = r.elements(args[0])
    if func._overloadpacket.__name__.startswith("threshold"):
        return chosen(r, r.seen(args[0]) <= args[1], float(args[2]), x)
    slope = argument(func, args, kwargs, "negative_slope", None)
    return chosen(r, r.seen(args[0]) > 0, x, r.builder.op("mul", x, r.of(args[1] if slope is None else slope)))


def chosen(r: Recorder, mask: np.ndarray, x: Elements | float, y: Elements | float) -> Elements:
    """x where mask, else y; mask is of the result's shape, numbers of the recorded run."""
    ids = [(r.builder.const(e) if isinstance(e, (int, float)) else e).ids for e in (x, y)]
    taken = np.where(mask, *ids)
    return Elements(taken.shape, ids=taken)


def axes_of(x: torch.Tensor, dim: Any) -> list[int]:
    if dim is None or (isinstance(dim, (list, tuple)) and len(dim) == 0):
        return list(range(x.dim()))
    return sorted(d % x.dim() for d in ([dim] if isinstance(dim, int) else dim)) if x.dim() else []


def reduce(r: Recorder, op: str, x: Elements, axes: list[int], keep: bool) -> Elements:
    """A reduction with torch's keepdim."""
    if not axes:
        return x
    y = r.builder.op(op, x, axes=axes)
    return y.reshape(*(1 if i in axes else n for i, n in enumerate(x.shape))) if keep else y


@rule("sum", "mean", "amax", "amin", "prod")
def _reduction(r, func, args, kwargs, out):
    name = func._overloadpacket.__name__
    x, dim = args[0], argument(func, args, kwargs, "dim")
    axes, keep = axes_of(x, dim), bool(argument(func, args, kwargs, "keepdim", False))
    elements = r.of(x)
    if kwargs.get("dtype") is not None and isinstance(elements, Elements):
        elements = r.as_type(elements, kwargs["dtype"])
    y = reduce(r, {"mean": "sum"}.get(name, name), elements, axes, keep)
    if name == "mean":
        y = r.builder.op("div", y, float(np.prod([x.shape[a] for a in axes]) if axes else 1))
    return y


@rule("max", "min")
def _extreme(r, func, args, kwargs, out):
    op = {"max": "amax", "min": "amin"}[func._overloadpacket.__name__]
    if len(args) > 1 and isinstance(args[1], torch.Tensor):
        return r.builder.op({"amax": "maximum", "amin": "minimum"}[op], r.of(args[0]), r.of(args[1]))
    return reduce(r, op, r.of(args[0]), list(range(args[0].dim())), False)


@rule("cumsum", "cumprod")
def _scan(r, func, args, kwargs, out):
    """float32 inside; eager CPU keeps the running value in opmath and rounds each element at the store."""
    x = r.of(args[0])
    if kwargs.get("dtype") is not None:
        x = r.as_type(x, kwargs["dtype"])
    if not args[0].dim():
        return x
    return r.builder.op(func._overloadpacket.__name__.rstrip("_"), x, axis=args[1] % args[0].dim(), shape=tuple(args[0].shape))


@rule("mm", "bmm", "matmul")
def _mm(r, func, args, kwargs, out):
    return r.builder.op("mm", r.of(args[0]), r.of(args[1]))


def _added(r: Recorder, func: Any, args: tuple, kwargs: dict, bias: Elements, product: Elements) -> Elements:
    """beta * bias + alpha * product; a beta of 0 ignores the bias, NaN included (LinearAlgebra.cpp)."""
    product = _scaled(r, product, argument(func, args, kwargs, "alpha"))
    beta = argument(func, args, kwargs, "beta")
    return product if beta == 0 else r.builder.op("add", _scaled(r, bias, beta), product)


@rule("addmm", "baddbmm")
def _addmm(r, func, args, kwargs, out):
    """One rounding at the end (gemm epilogue)."""
    return _added(r, func, args, kwargs, r.of(args[0]), r.builder.op("mm", r.of(args[1]), r.of(args[2])))


@rule("addbmm")
def _addbmm(r, func, args, kwargs, out):
    """addmm after addmm into the result: rounded at each (LinearAlgebra.cpp addbmm_impl)."""
    total, products, beta = r.of(args[0]), r.builder.op("mm", r.of(args[1]), r.of(args[2])), {"beta": argument(func, args, kwargs, "beta")}
    for i in range(args[1].shape[0]):
        product = products.map(lambda ids, i=i: ids[i])
        total = r.rounded(_added(r, func, args, {**kwargs, **(beta if i == 0 else {"beta": 1})}, total, product), out)
    return total


@rule("mv", "addmv")
def _mv(r, func, args, kwargs, out):
    *bias, matrix, vector = args[:3] if func._overloadpacket.__name__.startswith("addmv") else args[:2]
    product = r.builder.op("mm", r.of(matrix), r.of(vector).reshape(vector.shape[0], 1)).reshape(matrix.shape[0])
    return _added(r, func, args, kwargs, r.of(bias[0]), product) if bias else product


@rule("dot", "vdot")
def _dot(r, func, args, kwargs, out):
    n = args[0].shape[0]
    return r.builder.op("mm", r.of(args[0]).reshape(1, n), r.of(args[1]).reshape(n, 1)).reshape()


@rule("linear")
def _linear(r, func, args, kwargs, out):
    x, weight = r.of(args[0]), r.of(args[1])
    turned = Elements(weight.shape[::-1], node=weight.node, offset=weight.offset, strides=weight.strides[::-1]) \
        if weight.is_affine else weight.map(lambda ids: ids.T)
    flat = x.reshape(int(np.prod(x.shape[:-1])), x.shape[-1])
    y = r.builder.op("mm", flat, turned).reshape(*x.shape[:-1], weight.shape[0])
    bias = argument(func, args, kwargs, "bias")
    return y if bias is None else r.builder.op("add", y, r.of(bias))


@rule("outer", "ger")
def _outer(r, func, args, kwargs, out):
    return r.builder.op("mul", r.of(args[0]).reshape(args[0].shape[0], 1), r.of(args[1]))


def hypot(r: Recorder, x: Elements, y: Elements, x_seen: np.ndarray, y_seen: np.ndarray) -> Elements:
    """The square root of x^2 + y^2; scaled by the larger one where a square leaves float32; infinite if one is (C99 hypotf)."""
    b = r.builder
    size = b.op("sqrt", b.op("add", b.op("mul", x, x), b.op("mul", y, y)))
    x_seen, y_seen = np.abs(np.broadcast_arrays(x_seen, y_seen))
    far = np.maximum(x_seen, y_seen)
    plain = (far == 0) | ((far > 1e-18) & (far < 1e18)) | np.isnan(far)
    if not plain.all():
        x, y = b.op("abs", x), b.op("abs", y)
        top = b.op("maximum", x, y)
        share = b.op("div", b.op("minimum", x, y), top)
        size = chosen(r, plain, size, b.op("mul", top, b.op("sqrt", b.op("add", b.op("mul", share, share), 1.0))))
    return chosen(r, np.isinf(x_seen) | np.isinf(y_seen), math.inf, size)


@rule("hypot")
def _hypot(r, func, args, kwargs, out):
    return hypot(r, r.of(args[0]), r.of(args[1]), r.seen(args[0]), r.seen(args[1]))
