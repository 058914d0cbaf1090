"""Floats made from integer bits: a rounding written as shifts and masks is recognised by its numbers.

`(x.view(int32) >> 16).to(int16).view(bfloat16)` is a truncation, with `+ 0x7FFF + lsb` it is round to nearest even.
Rather than follow integer arithmetic, the float that comes out is compared with every recorded value of the same size
under every mode; one that agrees in every element is what happened, and two neighbours everywhere is stochastic
rounding. Anything else is an opaque value, reported as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from graphdiff.program import Elements
from graphdiff.program.dtypes import LOW, decode, round_to

if TYPE_CHECKING:
    from graphdiff.lower.aten.recorder import Recorder

MODES = ("rne", "rna", "rz", "up", "down")


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
    formats = [name] if name in LOW else sorted(LOW)
    for x in recorder.candidates(out.numel()):
        source = builder.numbers(x).reshape(-1)
        if np.array_equal(source, numbers, equal_nan=True):
            return x.reshape(*out.shape)
        for dtype in formats:
            for mode in MODES:
                if np.array_equal(round_to(source, dtype, mode), numbers, equal_nan=True):
                    return builder.round(x.reshape(*out.shape), dtype, mode)
            below, above = round_to(source, dtype, "down"), round_to(source, dtype, "up")
            if np.all((numbers == below) | (numbers == above)):
                rounded = builder.round(x.reshape(*out.shape), dtype, "stochastic")
                builder.leaf_bits[rounded.node] = numbers.copy()
                builder.program.data[rounded.node] = builder.leaf_bits[rounded.node]
                return rounded
    recorder.opaque_ops.append("integer bits viewed as float")
    return builder.leaf("bits", raw_bits(out.contiguous()).copy(), name, dynamic=True, keep=True)
