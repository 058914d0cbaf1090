"""Numbers for inputs that a dump does not hold: generic, the same for the same place, sizes and format."""

from __future__ import annotations

import hashlib

import numpy as np

from graphdiff.capture.dumps.signature import TensorArgument
from graphdiff.program.dtypes import STORAGE, decode_table, encode_bfloat16, round_to

WORST_INDEX = 8
"""Integers stay below it where they may be indices into a table of unknown length."""


def standin(argument: TensorArgument, place: int, seed: int) -> np.ndarray:
    """Raw bits (floats) or numbers (integers) in contiguous order.

    place: among the inputs. The second factor of a matrix product is scaled, so that sums over it stay near 1.
    """
    key = f"{seed} {place} {argument.shape} {argument.dtype}".encode()
    generator = np.random.default_rng(int.from_bytes(hashlib.sha256(key).digest()[:8], "little"))
    if argument.dtype not in STORAGE:
        size = int(np.prod(argument.shape, dtype=np.int64))
        numbers = generator.integers(0, 2, size) if argument.dtype == "bool" else np.arange(size) % WORST_INDEX
        return numbers.reshape(argument.shape).astype("bool" if argument.dtype == "bool" else argument.dtype)
    numbers = generator.standard_normal(argument.shape, np.float32) / np.float32(argument.fan_in ** 0.5)
    return encode(numbers, argument.dtype)


def encode(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """float32 numbers rounded to a format, as its bits."""
    rounded = round_to(numbers, dtype)
    if dtype == "bfloat16":
        return encode_bfloat16(rounded)
    if dtype == "float16":
        return rounded.astype(np.float16).view(np.uint16)
    if dtype in ("float8_e4m3fn", "float8_e5m2"):
        table = decode_table(dtype)
        order = np.argsort(np.where(np.isfinite(table), table, np.inf), kind="stable")
        return order[np.searchsorted(table[order][: int(np.isfinite(table).sum())], rounded)].astype(np.uint8)
    return rounded.astype(STORAGE[dtype])
