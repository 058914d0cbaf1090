"""Seeded random inputs for stored output codes: shapes and strides are read from their `get_args()`."""

from __future__ import annotations

import ast

import numpy as np

from graphdiff.lower.inductor import Input


def inputs_of(text: str, *, seed: int = 0, bound: int = 8) -> list[Input | int]:
    """One input per argument; integer tensors hold numbers below `bound`."""
    rng = np.random.default_rng(seed)
    get_args = next(f for f in ast.walk(ast.parse(text)) if isinstance(f, ast.FunctionDef) and f.name == "get_args")
    assigned = [s for s in get_args.body if isinstance(s, ast.Assign)]
    return [_input(s.targets[0].id, s.value, rng, bound) for s in assigned]


def _input(name: str, value: ast.expr, rng: np.random.Generator, bound: int) -> Input | int:
    if isinstance(value, ast.Constant):
        return value.value
    shape, strides = ast.literal_eval(value.args[0]), ast.literal_eval(value.args[1])
    dtype = next(k.value.attr for k in value.keywords if k.arg == "dtype")
    if dtype not in ("bfloat16", "float16", "float32"):
        return Input(name, rng.integers(0, bound, shape), dtype, strides)
    return Input(name, random_bits(shape, dtype, rng), dtype, strides)


def random_bits(shape: tuple[int, ...], dtype: str, rng: np.random.Generator) -> np.ndarray:
    """Raw bits of normal numbers, bfloat16 cut."""
    return cut_bits(rng.standard_normal(shape).astype(np.float32), dtype)


def cut_bits(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """Raw bits of float32 numbers in a format, bfloat16 cut."""
    if dtype == "bfloat16":
        return (numbers.view(np.uint32) >> 16).astype(np.uint16)
    return numbers.astype(np.float16).view(np.uint16) if dtype == "float16" else numbers
