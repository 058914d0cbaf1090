"""Roundings written as integer arithmetic on a float's bits, recognised by the numbers that come out.

`(bits >> 16)` read as bfloat16 is a truncation, with `+ 0x7FFF + lsb` before it round to nearest even. Rather than follow
the integers, what comes out is compared with the float's numbers under every format and mode.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphdiff.program.dtypes import LOW, round_to

MODES = ("rne", "rna", "rz", "up", "down")


def rounding_between(source: np.ndarray, numbers: np.ndarray, dtype: str) -> tuple[str, str] | None:
    """(format, mode) that makes `numbers`, held in dtype, of `source`; ("", "") where they are equal; None: no rounding.

    Both float32 of one size. The mode is "stochastic" where every number is one of its source's two neighbours, in no
    one direction. An empty array says nothing and is taken as equal.
    """
    if np.array_equal(source, numbers, equal_nan=True):
        return "", ""
    for name in [dtype] if dtype in LOW else sorted(LOW):
        for mode in MODES:
            if np.array_equal(round_to(source, name, mode), numbers, equal_nan=True):
                return name, mode
        below, above = round_to(source, name, "down"), round_to(source, name, "up")
        if np.all((numbers == below) | (numbers == above)):
            return name, "stochastic"
    return None
