"""Backward ops of eager autograd: several primitives in FP32, rounded only at their end, or moved elements.

Of a CPU, as everything eager here: CUDA's sigmoid_backward computes in the tensor's own type and rounds three times
(cuda/BinaryMiscBackwardOpsKernels.cu).

Sources (torch 2.13, aten/src/ATen/native): cpu/Activation.cpp (silu_backward), cpu/BinaryOpsKernel.cpp (sigmoid_backward),
cpu/SoftMaxKernel.cpp (vec_host_softmax_backward_lastdim). Bits: tests/unit/test_eager_gradients.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphdiff.lower.aten.arithmetic import axes_of, reduce
from graphdiff.lower.aten.composite import sigmoid
from graphdiff.program import Elements
from graphdiff.program.builder import SHIFT


def _silu_backward(r, func, args, kwargs, out):
    grad, x, b = r.of(args[0]), r.of(args[1]), r.builder
    s = sigmoid(r, x)
    return b.op("mul", b.op("mul", grad, s), b.op("add", b.op("mul", x, b.op("sub", 1.0, s)), 1.0))


def _sigmoid_backward(r, func, args, kwargs, out):
    grad, y, b = r.of(args[0]), r.of(args[1]), r.builder
    return b.op("mul", grad, b.op("mul", b.op("sub", 1.0, y), y))


def _softmax_backward(r, func, args, kwargs, out):
    grad, y, b = r.of(args[0]), r.of(args[1]), r.builder
    total = reduce(r, "sum", b.op("mul", grad, y), axes_of(args[0], args[2]), True)
    return b.op("mul", b.op("sub", grad, total), y)


def _slice_backward(r, func, args, kwargs, out):
    """The gradient in its place, zeros around it; nothing is rounded (FunctionsManual.cpp)."""
    grad, (sizes, dim, start, end, step) = r.of(args[0]), args[1:]
    ids = np.full(tuple(sizes), r.builder.const(0.0).node << SHIFT, np.int64)
    ids[(slice(None),) * (dim % len(sizes)) + (slice(start, end, step),)] = grad.ids
    return Elements(ids.shape, ids=ids)


RULES: dict[str, Any] = {"slice_backward": _slice_backward, "silu_backward": _silu_backward, "sigmoid_backward": _sigmoid_backward, "_softmax_backward_data": _softmax_backward}
