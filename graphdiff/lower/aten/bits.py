"""Floats made from integer bits: a rounding written as shifts and masks is recognised by its numbers.

The float that comes out is compared with every recorded value of the same size under every mode (program/bit_patterns);
one that agrees in every element is what happened. Anything else is an opaque value, reported as such. Bits written in
place are compared with what stood there before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
import torch

from graphdiff.program import Elements
from graphdiff.program.bit_patterns import rounding_between
from graphdiff.program.dtypes import STORAGE, decode

if TYPE_CHECKING:
    from graphdiff.lower.aten.recorder import Recorder


def recognise_bits(recorder: Recorder, out: torch.Tensor) -> None:
    """Bind a float tensor that was viewed from integers to what it is."""
    from graphdiff.lower.aten.recorder import FLOATS, is_float

    if not is_float(out) or out.dtype not in FLOATS or recorder.holds(out):
        return
    recorder.bind(out, _find(recorder, out, FLOATS[out.dtype], recorder.candidates(out.numel())))


def bits_written(recorder: Recorder, integers: torch.Tensor, name: str) -> None:
    """Integers were written into the memory of floats of format `name`: those floats are other values now."""
    from graphdiff.lower.aten.recorder import FLOATS

    if integers.element_size() != np.dtype(STORAGE[name]).itemsize:
        raise recorder.refused(f"it writes {integers.element_size()}-byte integers into memory of {name}")
    if integers.numel():
        floats = integers.detach().view({v: k for k, v in FLOATS.items()}[name])
        recorder.write(floats, _find(recorder, floats, name, [recorder.elements(floats)]))


def _find(recorder: Recorder, out: torch.Tensor, name: str, sources: Iterable[Elements]) -> Elements:
    from graphdiff.lower.aten.recorder import raw_bits

    builder = recorder.builder
    raw = raw_bits(out.contiguous()).copy()
    numbers = decode(raw.reshape(-1), name).astype(np.float32)
    for x in sources:
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
    recorder.remarks.opaque.append("integer bits viewed as float")
    return builder.leaf("bits", raw, name, dynamic=True, keep=True)
