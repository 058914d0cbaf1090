"""ATen ops that are several primitives and round only at their end: activations, softmax, norms, attention, losses.

Sources (torch 2.13, aten/src/ATen/native): Activation.cpp and cpu/Activation.cpp (silu, gelu ...), cpu/SoftMaxKernel.cpp,
layer_norm.cpp and cpu/layer_norm_kernel.cpp (layer_norm, rms_norm), transformers/attention.cpp, LossNLL.cpp,
cpu/IndexKernel.cpp and TensorAdvancedIndexing.cpp (index_add, scatter_add: one rounding per call).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphdiff.lower.aten.arithmetic import RULES as _ARITHMETIC
from graphdiff.lower.aten.arithmetic import argument, axes_of, reduce
from graphdiff.program import Elements
from graphdiff.program.builder import SHIFT

if TYPE_CHECKING:
    from graphdiff.lower.aten.recorder import Recorder

RULES: dict[str, Any] = {}


def rule(*names: str):
    def register(function):
        RULES.update(dict.fromkeys(names, function))
        return function
    return register


def sigmoid(r: Recorder, x: Elements) -> Elements:
    b = r.builder
    return b.op("div", 1.0, b.op("add", b.op("exp", b.op("neg", x)), 1.0))


@rule("sigmoid")
def _sigmoid(r, func, args, kwargs, out):
    return sigmoid(r, r.of(args[0]))


@rule("silu")
def _silu(r, func, args, kwargs, out):
    """x / (1 + exp(-x)) (cpu/Activation.cpp silu_kernel)."""
    x, b = r.of(args[0]), r.builder
    return b.op("div", x, b.op("add", b.op("exp", b.op("neg", x)), 1.0))


@rule("glu")
def _glu(r, func, args, kwargs, out):
    dim = argument(func, args, kwargs, "dim", -1)
    a, g = (r.of(t) for t in args[0].chunk(2, dim))
    return r.builder.op("mul", a, sigmoid(r, g))


@rule("log_sigmoid_forward")
def _log_sigmoid(r, func, args, kwargs, out):
    x, b = r.of(args[0]), r.builder
    tail = b.op("log1p", b.op("exp", b.op("neg", b.op("abs", x))))
    return b.op("sub", b.op("minimum", x, 0.0), tail), None


@rule("softplus")
def _softplus(r, func, args, kwargs, out):
    beta, threshold = float(argument(func, args, kwargs, "beta", 1)), float(argument(func, args, kwargs, "threshold", 20))
    x, b = r.of(args[0]), r.builder
    soft = b.op("div", b.op("log1p", b.op("exp", b.op("mul", x, beta))), beta)
    linear = (args[0].detach().float() * beta > threshold).numpy()
    return Elements(x.shape, ids=np.where(linear, x.ids, soft.ids))


@rule("elu", "celu", "selu")
def _elu(r, func, args, kwargs, out):
    alpha, scale, inner = (float(argument(func, args, kwargs, n, 1)) for n in ("alpha", "scale", "input_scale"))
    x, b = r.of(args[0]), r.builder
    negative = b.op("mul", b.op("expm1", b.op("mul", x, inner)), alpha * scale)
    positive = b.op("mul", x, scale) if scale != 1 else x
    return Elements(x.shape, ids=np.where((args[0].detach() > 0).numpy(), positive.ids, negative.ids))


@rule("gelu")
def _gelu(r, func, args, kwargs, out):
    x, b = r.of(args[0]), r.builder
    if kwargs.get("approximate", "none") == "tanh":
        cube = b.op("mul", b.op("mul", x, x), x)
        inner = b.op("mul", b.op("add", x, b.op("mul", cube, 0.044715)), math.sqrt(2 / math.pi))
        return b.op("mul", b.op("mul", x, 0.5), b.op("add", b.op("tanh", inner), 1.0))
    return b.op("mul", b.op("mul", x, 0.5), b.op("add", b.op("erf", b.op("mul", x, math.sqrt(0.5))), 1.0))


@rule("hardsigmoid", "hardswish")
def _hard(r, func, args, kwargs, out):
    x, b = r.of(args[0]), r.builder
    gate = b.op("minimum", b.op("maximum", b.op("add", x, 3.0), 0.0), 6.0)
    gate = gate if func._overloadpacket.__name__.startswith("hardsigmoid") else b.op("mul", x, gate)
    return b.op("div", gate, 6.0)


@rule("mish")
def _mish(r, func, args, kwargs, out):
    x, b = r.of(args[0]), r.builder
    return b.op("mul", x, b.op("tanh", b.op("log1p", b.op("exp", x))))


@rule("logit")
def _logit(r, func, args, kwargs, out):
    x, b = r.of(args[0]), r.builder
    return b.op("log", b.op("div", x, b.op("sub", 1.0, x)))


@rule("_softmax", "_log_softmax", "_safe_softmax")
def _softmax(r, func, args, kwargs, out):
    x, b = r.of(args[0]), r.builder
    axes = axes_of(args[0], args[1])
    shifted = b.op("sub", x, reduce(r, "amax", x, axes, True))
    e = b.op("exp", shifted)
    total = reduce(r, "sum", e, axes, True)
    return b.op("sub", shifted, b.op("log", total)) if "log" in func._overloadpacket.__name__ else b.op("div", e, total)


@rule("logsumexp")
def _logsumexp(r, func, args, kwargs, out):
    """A chain of eager ops, each rounding (native/ReduceOps.cpp logsumexp_out_impl)."""
    x, b = r.of(args[0]), r.builder
    axes, keep = axes_of(args[0], args[1]), bool(argument(func, args, kwargs, "keepdim", False))
    stored = lambda y: r.rounded(y, out)  # noqa: E731
    top = reduce(r, "amax", x, axes, True)
    e = stored(b.op("exp", stored(b.op("sub", x, top))))
    y = b.op("add", stored(b.op("log", stored(reduce(r, "sum", e, axes, True)))), top)
    return y if keep else y.reshape(*(n for i, n in enumerate(x.shape) if i not in axes))


def _mean(r: Recorder, x: Elements, axes: list[int]) -> Elements:
    return r.builder.op("div", reduce(r, "sum", x, axes, True), float(math.prod(x.shape[a] for a in axes)))


def _affine(r: Recorder, x: Elements, weight: Any, bias: Any) -> Elements:
    if weight is not None:
        x = r.builder.op("mul", x, r.of(weight))
    return x if bias is None else r.builder.op("add", x, r.of(bias))


@rule("_fused_rms_norm", "rms_norm")
def _rms_norm(r, func, args, kwargs, out):
    x, b = r.of(args[0]), r.builder
    n = len(argument(func, args, kwargs, "normalized_shape"))
    axes = list(range(len(x.shape) - n, len(x.shape)))
    eps = argument(func, args, kwargs, "eps")
    eps = torch.finfo(args[0].dtype).eps if eps is None else float(eps)
    rstd = b.op("rsqrt", b.op("add", _mean(r, b.op("mul", x, x), axes), eps))
    y = _affine(r, b.op("mul", x, rstd), argument(func, args, kwargs, "weight"), None)
    return (y, rstd) if isinstance(out, (tuple, list)) else y


@rule("native_layer_norm", "layer_norm")
def _layer_norm(r, func, args, kwargs, out):
    x, b = r.of(args[0]), r.builder
    n = len(args[1])
    axes = list(range(len(x.shape) - n, len(x.shape)))
    mean = _mean(r, x, axes)
    centred = b.op("sub", x, mean)
    rstd = b.op("rsqrt", b.op("add", _mean(r, b.op("mul", centred, centred), axes), float(argument(func, args, kwargs, "eps"))))
    y = _affine(r, b.op("mul", centred, rstd), argument(func, args, kwargs, "weight"), argument(func, args, kwargs, "bias"))
    return (y, mean, rstd) if isinstance(out, (tuple, list)) else y


@rule("var", "std", "var_mean", "std_mean")
def _var(r, func, args, kwargs, out):
    x, b = r.of(args[0]), r.builder
    axes = axes_of(args[0], argument(func, args, kwargs, "dim"))
    correction = argument(func, args, kwargs, "correction")
    unbiased = argument(func, args, kwargs, "unbiased")
    correction = 1.0 if correction is None else float(correction)
    if unbiased is False:
        correction = 0.0
    count = math.prod(x.shape[a] for a in axes)
    mean = _mean(r, x, axes)
    centred = b.op("sub", x, mean)
    y = b.op("div", reduce(r, "sum", b.op("mul", centred, centred), axes, True), count - correction)
    name = func._overloadpacket.__name__
    y = b.op("sqrt", y) if name.startswith("std") else y
    if not argument(func, args, kwargs, "keepdim", False):
        shape = [n for i, n in enumerate(x.shape) if i not in axes]
        y, mean = y.reshape(*shape), mean.reshape(*shape)
    return (y, mean) if name.endswith("_mean") else y


@rule("linalg_vector_norm", "norm")
def _norm(r, func, args, kwargs, out):
    order = args[1] if len(args) > 1 and args[1] is not None else 2
    x, b = r.of(args[0]), r.builder
    axes, keep = axes_of(args[0], argument(func, args, kwargs, "dim")), bool(argument(func, args, kwargs, "keepdim", False))
    if order == 1:
        return reduce(r, "sum", b.op("abs", x), axes, keep)
    if order == math.inf:
        return reduce(r, "amax", b.op("abs", x), axes, keep)
    power = b.op("mul", x, x) if order == 2 else b.op("pow", b.op("abs", x), float(order))
    total = reduce(r, "sum", power, axes, keep)
    return b.op("sqrt", total) if order == 2 else b.op("pow", total, 1.0 / float(order))


@rule("native_dropout")
def _dropout(r, func, args, kwargs, out):
    r.random_ops.append(str(func))
    p = float(args[1])
    mask = r.builder.const_array(out[1].float().numpy(), dynamic=False)
    return r.builder.op("mul", r.builder.op("mul", r.of(args[0]), mask), 1.0 / (1.0 - p) if p < 1 else 0.0), None


# ---- attention
@rule("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_attention_math", "_scaled_dot_product_flash_attention",
      "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_fused_attention_overrideable",
      "_scaled_dot_product_attention_math_for_mps", "scaled_dot_product_attention")
def _attention(r, func, args, kwargs, out):
    """An anchor: what flash kernels round inside is theirs; softmax(q k^T * scale + mask) v, rounded at the output."""
    q, k, v = (r.of(t) for t in args[:3])
    mask = argument(func, args, kwargs, "attn_mask")
    if mask is None:
        mask = argument(func, args, kwargs, "attn_bias")
    scale = argument(func, args, kwargs, "scale")
    ins = [q, k, v]
    if mask is not None:
        if mask.dtype == torch.bool:
            numbers = torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
            ins.append(r.builder.const_array(numbers.numpy()))
        else:
            ins.append(r.of(mask))
    y = r.builder.op("attention", *ins, shape=(*q.shape[:-1], v.shape[-1]), scale=1 / math.sqrt(q.shape[-1]) if scale is None else float(scale),
                     causal=bool(argument(func, args, kwargs, "is_causal", False)))
    return (y, *[None] * 8) if isinstance(out, (tuple, list)) else y


# ---- scattered additions
@rule("index_add", "scatter_add", "index_put", "_index_put_impl", "index_reduce")
def _index_add(r, func, args, kwargs, out):
    """Rows that receive several additions receive them in order; one rounding per call (measured on CPU, torch 2.13)."""
    name = func._overloadpacket.__name__.rstrip("_")
    base = args[0]
    target, source = _places(r, name, args, kwargs)
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
        flat[place[now]] = r.builder.op("add", there, term).ids
    touched = np.unique(place)
    if touched.size:
        flat[touched] = r.rounded(Elements((touched.size,), ids=flat[touched]), base).ids
    return Elements(tuple(base.shape), ids=flat.reshape(base.shape))


def _places(r: Recorder, name: str, args: tuple, kwargs: dict) -> tuple[np.ndarray, Elements]:
    """Element numbers of the output each element of the source is added to, and the source."""
    base = args[0]
    numbers = torch.arange(base.numel()).reshape(base.shape)
    if name == "index_add":
        dim, index, source = args[1], args[2], args[3]
        value = r.of(source)
        alpha = kwargs.get("alpha", 1)
        return numbers.index_select(dim, index).numpy(), value if alpha == 1 else r.builder.op("mul", value, float(alpha))
    if name == "scatter_add":
        dim, index, source = args[1], args[2], args[3]
        part = r.of(source).map(lambda ids: ids[tuple(slice(0, n) for n in index.shape)])
        return numbers.gather(dim, index).numpy(), part
    return numbers[tuple(slice(None) if i is None else i for i in args[1])].numpy(), r.of(args[2])


# ---- losses
@rule("nll_loss_forward")
def _nll(r, func, args, kwargs, out):
    logp, target = r.elements(args[0]), args[1].numpy()
    kept = np.flatnonzero(target != args[4])
    picked = Elements((kept.size,), ids=logp.ids.reshape(-1, logp.shape[-1])[kept, target.reshape(-1)[kept]])
    loss = r.builder.op("neg", picked)
    if args[3] == 0:
        full = np.full(target.size, r.builder.const(0.0).node << SHIFT, np.int64)
        full[kept] = loss.ids
        return Elements(tuple(out[0].shape), ids=full.reshape(out[0].shape)), None
    total = r.builder.op("sum", loss, axes=[0])
    return (r.builder.op("div", total, float(kept.size)) if args[3] == 1 else total), None


@rule("mse_loss")
def _mse(r, func, args, kwargs, out):
    d = r.builder.op("sub", r.of(args[0]), r.of(args[1]))
    square = r.builder.op("mul", d, d)
    reduction = argument(func, args, kwargs, "reduction", 1)
    if reduction == 0:
        return square
    total = reduce(r, "sum", square, list(range(len(square.shape))), False)
    return r.builder.op("div", total, float(square.size)) if reduction == 1 else total


@rule("logaddexp")
def _logaddexp(r, func, args, kwargs, out):
    b = r.builder
    x, y = (r.of(a) for a in args[:2])
    top = b.op("maximum", x, y)
    return b.op("add", top, b.op("log", b.op("add", b.op("exp", b.op("sub", x, top)), b.op("exp", b.op("sub", y, top)))))


@rule("xlogy", "special_xlog1py")
def _xlogy(r, func, args, kwargs, out):
    return r.builder.op("mul", r.of(args[0]), r.builder.op("log", r.of(args[1])))


@rule("special_entr")
def _entr(r, func, args, kwargs, out):
    x = r.of(args[0])
    return r.builder.op("neg", r.builder.op("mul", x, r.builder.op("log", x)))


@rule("_scaled_mm")
def _scaled_mm(r, func, args, kwargs, out):
    """(a @ b) * scale_a * scale_b (+ bias), float32 inside, one rounding (native/cuda/Blas.cpp)."""
    b = r.builder
    y = b.op("mm", r.of(args[0]), r.of(args[1]))
    for name in ("scale_a", "scale_b"):
        scale = argument(func, args, kwargs, name)
        if scale is not None:
            y = b.op("mul", y, r.of(scale))
    bias = argument(func, args, kwargs, "bias")
    return y if bias is None else b.op("add", y, r.of(bias))


assert not set(RULES) & set(_ARITHMETIC), set(RULES) & set(_ARITHMETIC)
