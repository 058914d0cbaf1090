"""ATen ops that are several primitives and round only at their end: activations, softmax, norms, attention, losses.

Sources (torch 2.13, aten/src/ATen/native): Activation.cpp and cpu/Activation.cpp (silu, gelu ...), cpu/SoftMaxKernel.cpp,
layer_norm.cpp and cpu/layer_norm_kernel.cpp (layer_norm, rms_norm), transformers/attention.cpp, Loss.cpp.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphdiff.lower.aten.arithmetic import argument, axes_of, chosen, reduce
from graphdiff.lower.aten.registry import Rule, registrar
from graphdiff.program import Elements

if TYPE_CHECKING:
    from graphdiff.lower.aten.recorder import Recorder

RULES: dict[str, Rule] = {}
rule = registrar(RULES)


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
    linear = r.seen(args[0]) * beta > threshold
    return Elements(x.shape, ids=np.where(linear, x.ids, soft.ids))


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


@rule("_softmax", "_log_softmax", "_safe_softmax")
def _softmax(r, func, args, kwargs, out):
    x, b = r.of(args[0]), r.builder
    axes = axes_of(args[0], args[1])
    shifted = b.op("sub", x, reduce(r, "amax", x, axes, True))
    e = b.op("exp", shifted)
    total = reduce(r, "sum", e, axes, True)
    if func._overloadpacket.__name__ == "_safe_softmax":
        # A row with nothing to attend to is zeros (SoftMax.cpp _safe_softmax).
        y = b.op("div", e, total)
        empty = np.broadcast_to((r.seen(args[0]) == -math.inf).all(tuple(axes), keepdims=True), y.shape)
        return chosen(r, empty, 0.0, y)
    return b.op("sub", shifted, b.op("log", total)) if "log" in func._overloadpacket.__name__ else b.op("div", e, total)


@rule("logsumexp")
def _logsumexp(r, func, args, kwargs, out):
    """A chain of eager ops, each rounding (native/ReduceOps.cpp logsumexp_out_impl)."""
    x, b = r.of(args[0]), r.builder
    axes, keep = axes_of(args[0], args[1]), bool(argument(func, args, kwargs, "keepdim", False))
    stored = lambda y: r.rounded(y, out)  # noqa: E731
    top = reduce(r, "amax", x, axes, True)
    infinite = np.isinf(r.seen(args[0]).max(tuple(axes), keepdims=True)) if axes else np.isinf(r.seen(args[0]))
    top = chosen(r, infinite, 0.0, top)
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
    y = b.op("div", reduce(r, "sum", b.op("mul", centred, centred), axes, True), max(0.0, count - correction))
    name = func._overloadpacket.__name__
    y = b.op("sqrt", y) if name.startswith("std") else y
    if not argument(func, args, kwargs, "keepdim", False):
        shape = [n for i, n in enumerate(x.shape) if i not in axes]
        y, mean = y.reshape(*shape), mean.reshape(*shape)
    return (y, mean) if name.endswith("_mean") else y


@rule("native_dropout")
def _dropout(r, func, args, kwargs, out):
    if args[2] is False:
        return r.of(args[0]), None
    r.remarks.random.append(str(func))
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
    if argument(func, args, kwargs, "dropout_p", 0.0):
        raise r.refused("its dropout is inside")
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


# ---- losses
@rule("mse_loss")
def _mse(r, func, args, kwargs, out):
    """The difference is in the tensor's own type, and the squares are stored before they are summed (Loss.cpp,
    cpu/BinaryOpsKernel.cpp mse_kernel, cuda/BinaryMiscOpsKernels.cu)."""
    d = r.rounded(r.builder.op("sub", r.of(args[0]), r.of(args[1])), out)
    square = r.rounded(r.builder.op("mul", d, d), out)
    reduction = argument(func, args, kwargs, "reduction", 1)
    if reduction == 0:
        return square
    total = reduce(r, "sum", square, list(range(len(square.shape))), False)
    return r.builder.op("div", total, float(square.size)) if reduction == 1 else total


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
