"""vLLM's attention as an anchor: what a layer asks of it (scale, window, soft cap, ALiBi, sinks), on [tokens, heads, head size].

The probe is one sequence from its first token on: every query sees the keys before it and itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphdiff.errors import GraphdiffError
from graphdiff.program.builder import Builder, Elements

FIX = "capture another model, or report the layer so that it can be added"


@dataclass(frozen=True)
class AttentionLayer:
    """A layer of the engine (model_executor/layers/attention/attention.py in vllm 0.32).

    scale: None is 1 / sqrt(head size). window: keys that a query sees, itself included; 0: all. soft_cap: a scaled score s
    becomes soft_cap * tanh(s / soft_cap); 0: stays. slopes: ALiBi's, one per head: key j adds slope * (j - i) to query i's
    score. sinks: one score per head that takes part in the softmax and has no value. refused: why it has no lowering.
    """

    scale: float | None = None
    window: int = 0
    soft_cap: float = 0.0
    slopes: tuple[float, ...] = ()
    sinks: tuple[float, ...] = ()
    refused: str = ""


def attended(builder: Builder, layer: AttentionLayer, q: Elements, k: Elements, v: Elements, where: str) -> Elements:
    """The unrounded result, [tokens, query heads, head size of v]. Raises GraphdiffError for what has no lowering."""
    if layer.refused:
        raise GraphdiffError(f"no lowering for {layer.refused}", where=where, fix=FIX)
    if k.shape != (q.shape[0], k.shape[1], q.shape[2]) or v.shape[:2] != k.shape[:2] or q.shape[1] % k.shape[1]:
        raise GraphdiffError(f"attention over shapes {q.shape}, {k.shape}, {v.shape}", where=where,
                             fix="the config's heads and key heads do not fit its weights, or keys come from elsewhere")
    first = [x.map(lambda ids: ids.transpose(1, 0, 2)) for x in (q, k, v)]
    mask = [builder.const_array(m) for m in _mask(layer, q.shape[0])]
    extra = {name: value for name, value in (("softcap", float(layer.soft_cap)), ("sinks", list(layer.sinks))) if value}
    made = builder.op("attention", *first, *mask, scale=float(q.shape[-1] ** -0.5 if layer.scale is None else layer.scale),
                      causal=True, shape=(*first[0].shape[:-1], v.shape[-1]), **extra)
    return made.map(lambda ids: ids.transpose(1, 0, 2))


def _mask(layer: AttentionLayer, tokens: int) -> list[np.ndarray]:
    """What is added to the scores, [tokens, tokens] or with ALiBi [heads, tokens, tokens]; none where nothing is.

    ALiBi as trainers spell it, slope * j: a softmax does not see the query's slope * i.
    """
    distance = np.arange(tokens)[None, :] - np.arange(tokens)[:, None]
    added = np.zeros((tokens, tokens), np.float32)
    if layer.window and layer.window < tokens:
        added = np.where(distance > -layer.window, added, -np.inf)
    if layer.slopes:
        added = added + np.asarray(layer.slopes, np.float32)[:, None, None] * np.arange(tokens, dtype=np.float32)
    return [added.astype(np.float32)] if added.any() else []
