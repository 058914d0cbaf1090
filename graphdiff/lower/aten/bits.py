"""Floats made from integer bits: a rounding written as shifts and masks is recognised by its numbers.

The float that comes out is compared with every recorded value of the same size under every mode (program/bit_patterns);
one that agrees in every element is what happened. Anything else is an opaque value, reported as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from graphdiff.program import Elements
from graphdiff.program.bit_patterns import rounding_between
from graphdiff.program.dtypes import decode

if TYPE_CHECKING:
    from graphdiff.lower.aten.recorder import Recorder


def recognise_bits(recorder: Recorder, out: torch.Tensor) -> None:
    """Bind a float tensor that was viewed from integers to what it is."""
    from graphdiff.lower.aten.recorder import FLOATS, is_float, raw_bits

    if not is_float(out) or out.dtype not in FLOATS:
        return
    name = FLOATS[out.dtype]
    numbers = decode(raw_bits(out.contiguous()).reshape(-1), name).astype(np.float32)
    recorder.bind(out, _find(recorder, out, numbers, name))


def _find(recorder: Recorder, out: torch.Tensor, numbers: np.ndarray, name: str) -> Elements:
    from graphdiff.lower.aten.recorder import raw_bits

    builder = recorder.builder
    for x in recorder.candidates(out.numel()):
        found = rounding_between(builder.numbers(x).reshape(-1), numbers, name)
        if found is None:
            continue
        dtype, mode = found
        if not dtype:
            return x.reshape(*out.shape)
        rounded = builder.round(x.reshape(*out.shape), dtype, mode)
        if mode == "stochastic":
            builder.leaf_bits[rounded.node] = numbers.copy()
            builder.program.data[rounded.node] = builder.leaf_bits[rounded.node]
        return rounded
    recorder.opaque_ops.append("integer bits viewed as float")
    return builder.leaf("bits", raw_bits(out.contiguous()).copy(), name, dynamic=True, keep=True)
