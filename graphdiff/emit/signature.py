"""What an emitted region is: its code, its operator's signature, and what one needs to know to check it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

TITLES = {
    "rope": "Rotary embedding of queries and keys",
    "qk_norm_rope": "Norm of each query and key head, then rotary embedding",
    "gated_activation": "Gated activation",
    "residual_rms_norm": "Residual addition and RMSNorm",
    "rms_norm": "RMSNorm",
    "layer_norm": "LayerNorm",
    "pointwise": "Elementwise region",
}
DESCRIPTIONS = {
    "rope": "Both products and their sum stay in FP32; the rotated value is rounded once, by the store.",
    "qk_norm_rope": """Normalised rows, their product with the weight, both products of the rotation and their sum stay in FP32;
the rotated value is rounded once, by the store. The row is read whole for its sum of squares and again by halves for
the rotation (the second read comes from the cache).""",
    "gated_activation": "The activation stays in FP32 until it is multiplied; the product is rounded once, by the store.",
    "residual_rms_norm": """The norm reads the sum of the residual before it is rounded. The residual itself is rounded once per layer, by the
store. After attention the sum attn + residual is normed and forgotten; the next norm computes mlp + (attn + residual)
from the same addends, so the inner sum is never rounded. Addends are passed on, not the FP32 sum: that moves half the
bytes, forward.

`carry` has no memory behind it (one element, expanded). It stands for the unrounded attn + residual in autograd's
graph: through it the next norm hands back the gradient of that sum, which would otherwise be added outside, once for
each addend and with one more rounding.""",
    "rms_norm": "Everything between the load and the one rounding of the store is FP32.",
    "layer_norm": "Everything between the load and the one rounding of the store is FP32.",
    "pointwise": "Everything between the loads and the one rounding of the store is FP32.",
}


@dataclass(frozen=True)
class Tensor:
    """An argument of the operator. shape: rows, heads, table, vector or carry; width: lanes of its rows."""

    name: str
    shape: str
    width: int
    dtype: str
    differentiable: bool = True


@dataclass(frozen=True)
class Signature:
    """`outputs = op(*inputs)`, in order. Tensors of shape rows are [..., width], heads [..., steps, heads, width],
    tables [batch or 1, steps, width] (only the lanes the kernel reads), vectors [width]."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


@dataclass(frozen=True)
class EmittedRegion:
    """One region's code. `module` is the file of the package it goes to; `text` its section there."""

    name: str
    kind: str
    op_name: str
    module: str
    forward_source: str
    """The Triton device functions and kernel of the forward."""
    backward_source: str
    reference_source: str
    text: str
    signature: Signature
    meta: dict[str, Any] = field(default_factory=dict)
    """fingerprint, engine kernels and modules, nodes, shapes of tiles, why there is no backward if there is none."""
