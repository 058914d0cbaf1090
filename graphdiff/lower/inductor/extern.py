"""Kernels that are not Triton: matmuls and attention, anchors rounded once at their output's format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphdiff.lower.inductor import extern_grouped, extern_indexing
from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.engine_attention import AttentionLayer, attended
from graphdiff.lower.inductor.reductions import stable_order
from graphdiff.lower.inductor.values import IntStorage, Tensor, fresh, is_dynamic
from graphdiff.program.builder import Elements


def finish(ctx: Context, x: Elements, out: Tensor) -> Tensor:
    """Round at the output's format and write."""
    out.write(ctx.builder.round(x, out.dtype))
    return out


def mm(ctx: Context, a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """mm and bmm."""
    made = ctx.builder.op("mm", a.read(), b.read())
    return finish(ctx, made, out or fresh(made.shape, a.dtype))


def addmm(ctx: Context, bias: Tensor, a: Tensor, b: Tensor, *, alpha: float = 1, beta: float = 1,
          out: Tensor | None = None) -> Tensor:
    """beta * bias + alpha * (a @ b), one rounding."""
    product = _scaled(ctx, ctx.builder.op("mm", a.read(), b.read()), alpha)
    made = product if beta == 0 else ctx.builder.op("add", product, _scaled(ctx, bias.read(), beta))
    return finish(ctx, made, out or fresh(made.shape, a.dtype))


def _scaled(ctx: Context, x: Elements, factor: float) -> Elements:
    return x if factor == 1 else ctx.builder.op("mul", x, float(factor))


def attention(ctx: Context, q: Elements, k: Elements, v: Elements, *, scale: float, causal: bool) -> Elements:
    """Heads first: q [..., H, T, D], k and v [..., G, S, D]."""
    return ctx.builder.op("attention", q, k, v, scale=float(scale), causal=bool(causal),
                          shape=(*q.shape[:-1], v.shape[-1]))


def engine_attention(ctx: Context, q: Tensor, k: Tensor, v: Tensor, out: Tensor, layer: Any = None, *_: Any, **__: Any) -> None:
    """vLLM lays q, k and v out as [tokens, heads, head size]; it writes its fourth argument. A layer that nobody described
    (a dump has its name alone) is taken as plain attention."""
    described = AttentionLayer() if ctx.attention is None else ctx.attention.get(str(layer))
    if described is None:
        raise ctx.unsupported(f"attention of a layer {layer} that the engine does not have")
    made = attended(ctx.builder, described, q.read(), k.read(), v.read(), ctx.where)
    out.write(ctx.builder.round(made, out.dtype).map(lambda ids: ids.reshape(out.shape)))


def nothing(ctx: Context, *_: Any, **__: Any) -> None:
    """Moves data away that the graph never reads."""


def like(x: Tensor) -> Tensor:
    """Fresh memory as `empty_like(x)` lays it out: dimensions in the order of x's strides, without gaps."""
    strides = [0] * len(x.shape)
    step = 1
    for axis in sorted(range(len(x.shape)), key=lambda a: (x.strides[a], -a)):
        strides[axis] = step
        step *= x.shape[axis]
    return Tensor(fresh(x.shape, x.dtype).storage, x.shape, tuple(strides))


def flash_attention(ctx: Context, q: Tensor, k: Tensor, v: Tensor, dropout_p: float = 0.0, is_causal: bool = False, return_debug_mask: bool = False,
                    *, scale: float | None = None) -> list[Any]:
    """aten::_scaled_dot_product_flash_attention; only the first output has a meaning here."""
    return _fused_attention(ctx, q, k, v, dropout_p, is_causal, scale)


def cudnn_attention(ctx: Context, q: Tensor, k: Tensor, v: Tensor, attn_bias: Tensor | None, compute_log_sumexp: bool, dropout_p: float = 0.0,
                    is_causal: bool = False, return_debug_mask: bool = False, *, scale: float | None = None) -> list[Any]:
    """aten::_scaled_dot_product_cudnn_attention; a bias is not lowered."""
    if attn_bias is not None:
        raise ctx.unsupported("fused attention with a mask")
    return _fused_attention(ctx, q, k, v, dropout_p, is_causal, scale)


def _fused_attention(ctx: Context, q: Tensor, k: Tensor, v: Tensor, dropout_p: float, is_causal: bool, scale: float | None) -> list[Any]:
    if dropout_p:
        raise ctx.unsupported("fused attention with dropout")
    made = attention(ctx, q.read(), k.read(), v.read(), scale=q.shape[-1] ** -0.5 if scale is None else scale, causal=is_causal)
    return [finish(ctx, made, like(q)), *[None] * 8]


def efficient_attention(ctx: Context, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, compute_log_sumexp: bool, dropout_p: float = 0.0,
                        is_causal: bool = False, *, scale: float | None = None) -> list[Any]:
    """ATen's memory-efficient attention, heads first; an additive mask is an operand."""
    if dropout_p:
        raise ctx.unsupported("fused attention with dropout")
    operands = [t.read() for t in (q, k, v, bias) if t is not None]
    made = ctx.builder.op("attention", *operands, scale=float(q.shape[-1] ** -0.5 if scale is None else scale), causal=bool(is_causal), shape=(*q.shape[:-1], v.shape[-1]))
    batch, heads, tokens, size = made.shape
    memory = fresh((batch, tokens, heads, size), q.dtype).storage  # the kernel's own order
    return [finish(ctx, made, Tensor(memory, made.shape, (tokens * heads * size, size, heads * size, 1))), *[None] * 3]


def topk(ctx: Context, x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[Tensor]:
    """Data movement steered by the numbers; equal values in their order."""
    elements = x.read()
    numbers = ctx.builder.numbers(elements)
    order = stable_order(numbers, dim, largest).take(range(k), axis=dim)
    values = fresh(order.shape, x.dtype)
    values.write(elements.map(lambda ids: np.take_along_axis(ids, order, dim)))
    indices = Tensor(IntStorage.of(order, "int64", dynamic=is_dynamic(ctx.builder, elements)), values.shape, values.strides)
    return [values, indices]


HANDLERS: dict[str, Callable[..., Any]] = {
    **extern_grouped.HANDLERS,
    "extern_kernels.mm": mm, "extern_kernels.bmm": mm, "extern_kernels.addmm": addmm,
    "extern_kernels.baddbmm": addmm, "extern_kernels.bias_addmm": addmm, "torch.ops.aten.mm.out": mm, "torch.ops.aten.mm.default": mm,
    "torch.ops.aten.bmm.default": mm, "torch.ops.aten.addmm.default": addmm,
    "torch.ops.aten.topk.default": topk, "torch.ops.aten.nonzero.default": extern_indexing.nonzero,
    "torch.ops.aten.index.Tensor": extern_indexing.index, "torch.ops.aten.index_add.default": extern_indexing.index_add,
    "torch.ops.vllm.unified_attention_with_output.default": engine_attention,
    "torch.ops.vllm.unified_kv_cache_update.default": nothing,
    "torch.ops.aten._scaled_dot_product_flash_attention.default": flash_attention,
    "torch.ops.aten._scaled_dot_product_cudnn_attention.default": cudnn_attention,
    "torch.ops.aten._scaled_dot_product_efficient_attention.default": efficient_attention,
}


def lookup(name: str) -> Callable[..., Any] | None:
    return HANDLERS.get(name.replace("aten.", "torch.ops.aten.", 1) if name.startswith("aten.") else name)
