"""Inductor's matmul templates: a whole product as one mm, with the epilogue that follows it in the kernel.

A template tiles with BLOCK_M, BLOCK_N and BLOCK_K, which its body sets; here they are the whole M, N and K, so its loop
over K runs once. A batch is an axis of the grid: all its programs are evaluated at once, as a leading axis.
Source of the tiling: torch/_inductor/kernel/templates/triton_mm.py.jinja, triton_bmm.py.jinja, triton_persistent_mm.py.jinja
(2.13). The accumulator is FP32; what an epilogue reads of it is rounded where the kernel's own text says so.
"""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from graphdiff.lower.inductor.arithmetic import Value, binary, is_number
from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.kernel_source import KernelSource
from graphdiff.lower.inductor.values import Floats, Ints

TILES = {"BLOCK_M": "M", "BLOCK_N": "N", "BLOCK_K": "K"}


def split_arguments(ctx: Context, kernel: KernelSource, arguments: list[Any]) -> tuple[list[Any], Value]:
    """(the kernel's own arguments, which of the batch each program has): the launch ends with the grid, whose first axis is tiles."""
    if kernel.launcher_arguments != 3 or len(arguments) < 3:
        raise ctx.unsupported("a template that is launched without its grid")
    *own, _, y, z = arguments
    batches = int(y) * int(z)
    return own, 0 if batches == 1 else Ints(np.arange(batches).reshape(-1, 1, 1))


def blocks(ctx: Context, kernel: KernelSource, expressions: Any) -> dict[str, int]:
    """The sizes that the body's tiles cover, by the tile's name. Raises GraphdiffError if it is no matmul."""
    said = {ast.unparse(s.targets[0]): s.value for s in kernel.body if isinstance(s, ast.Assign) and len(s.targets) == 1}
    if not all(size in said for size in TILES.values()):
        raise ctx.unsupported("a template that is no matmul (it names no M, N and K)")
    found = {tile: expressions.value(said[size]) for tile, size in TILES.items()}
    if not all(is_number(n) for n in found.values()):
        raise ctx.unsupported("a template whose M, N or K is no number")
    return {tile: max(1, int(n)) for tile, n in found.items()}


def with_batch(x: Value, tile: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tile, with the batch if x has one."""
    shape = getattr(x, "shape", ())
    return (*shape[:len(shape) - len(tile)], *tile)


def dot(run: Any, a: Value, b: Value, acc: Value = None, input_precision: Any = None, allow_tf32: Any = None,
        max_num_imprecise_acc: Any = None, out_dtype: Any = None) -> Value:
    """acc + a @ b in FP32, a [..., M, K] and b [..., K, N] in a 16-bit format or IEEE float32."""
    ctx = run.ctx
    if not (isinstance(a, Floats) and isinstance(b, Floats)) or "float8" in a.dtype + b.dtype:
        raise ctx.unsupported("tl.dot of anything but 16-bit or 32-bit floats")
    if "float32" in (a.dtype, b.dtype) and (allow_tf32 or input_precision not in (None, "ieee") or allow_tf32 is None and input_precision is None):
        raise ctx.unsupported("tl.dot in TF32, which rounds its operands to 10 bits")
    if out_dtype is not None and out_dtype.name != "float32" or max_num_imprecise_acc:
        raise ctx.unsupported("tl.dot with an accumulator that is not float32")
    product = Floats(ctx.builder.op("mm", a.elements, b.elements))
    return product if acc is None else binary(ctx, "Add", acc, product)
