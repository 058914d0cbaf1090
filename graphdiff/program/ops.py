"""The primitive ops of a program: their kind and their meaning in numpy.

Kinds decide how comparing reads them:
  arith   forms a new value; a consumer. float32 arithmetic keeps float32 until a round op.
  exact   commutes with rounding (neg, abs, max, power-of-two scale ...): looked through, never a consumer.
  anchor  matmul, attention, embedding: compared, never moved.
  round   the only op that rounds to a low format.
  leaf    parameter, input, constant.
  opaque  an op nobody told us the schedule of: inputs are read by it, its outputs are new leaves.

Every function takes numpy arrays of one float dtype and the node's attributes, and returns that dtype; shapes follow
numpy broadcasting. Transcendentals are looked up in an `Arithmetic`, so tests can swap numpy's for torch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Attrs = dict[str, Any]


def _erf(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x.astype(np.float64))).astype(x.dtype)


def _lgamma(x: np.ndarray) -> np.ndarray:
    """Infinite at 0 and the negative whole numbers, at infinities and where it leaves float64 (C's lgamma)."""
    def one(v: float) -> float:
        try:
            return math.lgamma(v)
        except (ValueError, OverflowError):
            return math.inf

    return np.asarray(np.frompyfunc(one, 1, 1)(x.astype(np.float64))).astype(x.dtype)


def _erfc(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.frompyfunc(math.erfc, 1, 1)(x.astype(np.float64))).astype(x.dtype)


def _erfinv(x: np.ndarray) -> np.ndarray:
    """The normal distribution's quantile (statistics), and one Newton step on erf, or on erfc where erf is flat."""
    from statistics import NormalDist

    def one(v: float) -> float:
        if not -1 < v < 1:
            return math.copysign(math.inf, v) if abs(v) == 1 else math.nan
        if abs(v) < 1e-5:
            return v * math.sqrt(math.pi) / 2 * (1 + math.pi * v * v / 12)
        size = abs(v)
        y = NormalDist().inv_cdf((1 + size) / 2) / math.sqrt(2)
        off = math.erf(y) - size if size < 0.5 else (1 - size) - math.erfc(y)
        return math.copysign(y - off * math.sqrt(math.pi) / 2 * math.exp(y * y), v)

    return np.asarray(np.frompyfunc(one, 1, 1)(x.astype(np.float64))).astype(x.dtype)


def _rsqrt(x: np.ndarray) -> np.ndarray:
    return (1.0 / np.sqrt(x.astype(np.float64))).astype(x.dtype)


def _sign(x: np.ndarray) -> np.ndarray:
    """(0 < x) - (x < 0): 0 of NaN, as torch (aten/src/ATen/native/cpu/UnaryOpsKernel.cpp) and generated code have it."""
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


@dataclass(frozen=True)
class Arithmetic:
    """Where float32 answers may differ between libraries: transcendentals and sums. Default: numpy's."""

    unary: dict[str, Callable[[np.ndarray], np.ndarray]] = field(default_factory=dict)
    sum: Callable[[np.ndarray, tuple[int, ...]], np.ndarray] = lambda x, axes: x.sum(axis=axes, dtype=x.dtype)

    def call(self, name: str, x: np.ndarray) -> np.ndarray:
        return (self.unary.get(name) or UNARY[name])(x)


UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "log10": np.log10, "sqrt": np.sqrt, "rsqrt": _rsqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh, "atan": np.arctan, "asin": np.arcsin, "acos": np.arccos,
    "atanh": np.arctanh, "asinh": np.arcsinh, "acosh": np.arccosh, "erf": _erf, "erfc": _erfc,
    "erfinv": _erfinv, "lgamma": _lgamma, "floor": np.floor, "ceil": np.ceil,
    "nearest": np.rint, "trunc": np.trunc, "sign": _sign, "reciprocal": lambda x: (1 / x).astype(x.dtype),
}
BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power, "fmod": np.fmod,
    "atan2": np.arctan2, "remainder": np.mod, "floor_divide": np.floor_divide, "nextafter": np.nextafter,
}
EXACT_UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {"neg": np.negative, "abs": np.abs}
EXACT_BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "maximum": np.maximum, "minimum": np.minimum, "copysign": np.copysign,
}
REDUCE_EXACT = {"amax": np.max, "amin": np.min}
REDUCE = {"prod": np.prod}
SCAN = {"cumsum": np.cumsum, "cumprod": np.cumprod}

KIND: dict[str, str] = {
    **dict.fromkeys(UNARY, "arith"), **dict.fromkeys(BINARY, "arith"), "sum": "arith",
    **dict.fromkeys(REDUCE, "arith"), **dict.fromkeys(SCAN, "arith"),
    **dict.fromkeys(EXACT_UNARY, "exact"), **dict.fromkeys(EXACT_BINARY, "exact"), **dict.fromkeys(REDUCE_EXACT, "exact"),
    "round": "round", "leaf": "leaf", "const": "leaf",
    "mm": "anchor", "attention": "anchor", "embedding": "anchor", "opaque": "opaque",
}
COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum"})


def apply(op: str, attrs: Attrs, ins: list[np.ndarray], arithmetic: Arithmetic) -> np.ndarray:
    """Evaluate one non-leaf, non-round op on arrays of one float dtype. Raises KeyError for an unknown op."""
    dtype = ins[0].dtype
    with np.errstate(all="ignore"):
        if op in UNARY:
            out = arithmetic.call(op, ins[0])
        elif op in BINARY:
            out = BINARY[op](ins[0], ins[1])
        elif op in EXACT_UNARY:
            out = EXACT_UNARY[op](ins[0])
        elif op in EXACT_BINARY:
            out = EXACT_BINARY[op](ins[0], ins[1])
        elif op == "sum":
            out = arithmetic.sum(ins[0], tuple(attrs["axes"]))
        elif op in REDUCE_EXACT:
            out = REDUCE_EXACT[op](ins[0], axis=tuple(attrs["axes"]))
        elif op in REDUCE:
            out = REDUCE[op](ins[0], axis=tuple(attrs["axes"]))
        elif op in SCAN:
            out = SCAN[op](ins[0], axis=attrs["axis"])
        elif op == "embedding":
            out = ins[0]
        elif op == "mm":
            out = matmul(ins[0], ins[1])
        elif op == "attention":
            out = attention(ins[0], ins[1], ins[2], ins[3] if len(ins) > 3 else None, attrs)
        else:
            raise KeyError(op)
    return np.asarray(out).astype(dtype, copy=False)


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """[..., M, K] @ [..., K, N], accumulated in float64 whatever the dtype, so that merged, sliced or transposed
    products of the same numbers are the same bits."""
    return np.matmul(a.astype(np.float64, copy=False), b.astype(np.float64, copy=False)).astype(a.dtype, copy=False)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None, attrs: Attrs) -> np.ndarray:
    """Softmax attention, q [..., H, T, D], k and v [..., G, S, D] with H a multiple of G; additive `mask`.

    attrs: scale (float), causal (bool: query i sees keys up to i, also where T is not S, as ATen). Accumulated in float64.
    """
    dtype = q.dtype
    q, k, v = (x.astype(np.float64, copy=False) for x in (q, k, v))
    repeat = q.shape[-3] // k.shape[-3]
    if repeat > 1:
        k, v = np.repeat(k, repeat, axis=-3), np.repeat(v, repeat, axis=-3)
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * attrs["scale"]
    if mask is not None:
        scores = scores + mask
    if attrs.get("causal"):
        t, s = scores.shape[-2:]
        scores = np.where(np.tril(np.ones((t, s), bool)), scores, -np.inf)
    # A row that may see nothing is zeros (aten/src/ATen/native/cpu/FlashAttentionKernel.cpp, _safe_softmax), not 0 / 0.
    top = scores.max(axis=-1, keepdims=True)
    scores = np.exp(scores - np.where(top == -np.inf, 0.0, top))
    total = scores.sum(axis=-1, keepdims=True)
    return np.matmul(scores / np.where(total == 0, 1.0, total), v).astype(dtype, copy=False)
