"""Numbers for inputs that a dump does not hold: generic, the same for the same place, sizes and format."""

from __future__ import annotations

import hashlib

import numpy as np

from graphdiff.capture.dumps.signature import TensorArgument
from graphdiff.program.dtypes import STORAGE, encode

WORST_INDEX = 8
"""Integers stay below it where they may be indices into a table of unknown length."""


def standin(argument: TensorArgument, place: int, seed: int) -> np.ndarray:
    """Raw bits (floats) or numbers (integers) in contiguous order.

    place: among the inputs. The second factor of a matrix product is scaled, so that sums over it stay near 1. A single
    integer may be a size, and a mask choose rows: it is 1, and the first of a mask is true, so that something is left.
    """
    key = f"{seed} {place} {argument.shape} {argument.dtype}".encode()
    generator = np.random.default_rng(int.from_bytes(hashlib.sha256(key).digest()[:8], "little"))
    if argument.dtype not in STORAGE:
        size = int(np.prod(argument.shape, dtype=np.int64))
        numbers = generator.integers(0, 2, size) if argument.dtype == "bool" else np.arange(size) % WORST_INDEX
        if size and (size == 1 or argument.dtype == "bool"):
            numbers[0] = 1
        return numbers.reshape(argument.shape).astype("bool" if argument.dtype == "bool" else argument.dtype)
    numbers = generator.standard_normal(argument.shape, np.float32) / np.float32(argument.fan_in ** 0.5)
    return encode(numbers, argument.dtype)
