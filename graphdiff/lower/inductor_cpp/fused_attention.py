"""ATen's flash attention for CPU (aten/src/ATen/native/cpu/FlashAttentionKernel.cpp): forward an anchor, backward opaque.

The backward's results are numbers, computed here in float64 from what it was given; what it rounds inside is not told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdiff.lower.inductor import extern as shared
from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.values import Tensor
from graphdiff.program.builder import Elements

FORWARD = "aten._scaled_dot_product_flash_attention_for_cpu"
BACKWARD = "aten._scaled_dot_product_flash_attention_for_cpu_backward"


@dataclass(frozen=True)
class LogSumExp:
    """What the forward saves beside its result, [batch, heads, tokens] in float32; made when somebody reads it."""

    operands: tuple[Elements, ...]
    scale: float
    causal: bool

    def tensor(self, ctx: Context) -> Tensor:
        """Its memory holds tokens before heads."""
        largest, total, _ = _probabilities(ctx, self.operands, self.scale, self.causal)
        return _opaque(ctx, FORWARD, 1, self.operands, (largest + np.log(total))[..., 0], (0, 2, 1), "float32")


def attention(ctx: Context, q: Tensor, k: Tensor, v: Tensor, dropout: float = 0.0, is_causal: bool = False, *,
              attn_mask: Tensor | None = None, scale: float | None = None, dropout_p: float = 0.0) -> list[Any]:
    """q, k, v [batch, heads, tokens, head size]; an additive mask is an operand."""
    if dropout or dropout_p:
        raise ctx.unsupported("fused attention with dropout")
    operands = [q.read(), k.read(), v.read()]
    if attn_mask is not None:
        operands.append(attn_mask.read())
    factor = float(scale or q.shape[-1] ** -0.5)
    made = ctx.builder.op("attention", *operands, scale=factor, causal=bool(is_causal), shape=(*q.shape[:-1], v.shape[-1]))
    return [shared.finish(ctx, made, shared.like(q)), LogSumExp(tuple(operands), factor, bool(is_causal)), *[None] * 7]


def backward(ctx: Context, gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, logsumexp: Any, dropout: float, is_causal: bool,
             *, attn_mask: Tensor | None = None, scale: float | None = None) -> list[Tensor]:
    """Gradients of q, k and v, memory with tokens before heads."""
    if dropout:
        raise ctx.unsupported("fused attention with dropout")
    if q.shape[1] != k.shape[1]:
        raise ctx.unsupported("the backward of fused attention with fewer key than query heads")
    operands = tuple(t.read() for t in (q, k, v, *([attn_mask] if attn_mask is not None else [])))
    factor = float(scale or q.shape[-1] ** -0.5)
    _, total, weights = _probabilities(ctx, operands, factor, bool(is_causal))
    p = weights / total
    dy = ctx.builder.numbers(gradient.read()).astype(np.float64)
    keys, values = (ctx.builder.numbers(x).astype(np.float64) for x in operands[1:3])
    queries = ctx.builder.numbers(operands[0]).astype(np.float64)
    dp = dy @ np.swapaxes(values, -1, -2)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) * factor
    found = ds @ keys, np.swapaxes(ds, -1, -2) @ queries, np.swapaxes(p, -1, -2) @ dy
    read = (gradient.read(), *operands)
    return [_opaque(ctx, BACKWARD, i, read, x, (0, 2, 1, 3), q.dtype) for i, x in enumerate(found)]


def _probabilities(ctx: Context, operands: tuple[Elements, ...], scale: float, causal: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(largest score of each query, sum of what follows, exp(score - largest)), float64."""
    q, k = (ctx.builder.numbers(x).astype(np.float64) for x in operands[:2])
    if k.shape[-3] != q.shape[-3]:
        k = np.repeat(k, q.shape[-3] // k.shape[-3], axis=-3)
    scores = q @ np.swapaxes(k, -1, -2) * scale
    if len(operands) > 3:
        scores = scores + ctx.builder.numbers(operands[3])
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool), scores.shape[-1] - scores.shape[-2]), scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    weights = np.exp(scores - largest)
    return largest, weights.sum(-1, keepdims=True), weights


def _opaque(ctx: Context, name: str, output: int, read: tuple[Elements, ...], numbers: np.ndarray, order: tuple[int, ...], dtype: str) -> Tensor:
    """A result of an op whose inside is not told; `order` of its dimensions in memory."""
    made = ctx.builder.op("opaque", *read, shape=numbers.shape, name=name, output=output)
    ctx.builder.leaf_bits[made.node] = np.ascontiguousarray(numbers, np.float32).reshape(-1)
    ctx.builder.program.data[made.node] = ctx.builder.leaf_bits[made.node]
    laid = shared.fresh(tuple(numbers.shape[a] for a in order), dtype)
    back = np.argsort(order)
    return shared.finish(ctx, made, Tensor(laid.storage, numbers.shape, tuple(laid.strides[a] for a in back)))



HANDLERS: dict[str, Callable[..., Any]] = {FORWARD: attention, BACKWARD: backward}
