"""The program: one side as a dataflow of primitive ops, every rounding an op of its own.

Moving data (views, slices, cat, gathers, loads and stores, masks) is no op at all: each operand says, element by
element, which elements of which nodes it reads. So two spellings of one layout are one program, a value that is only
partly rounded is told apart per element, and aliasing or buffer reuse cannot confuse it.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import msgspec
import numpy as np

from graphdiff.program.ops import KIND


class Site(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a node comes from. All parts may be empty; lines are 1-based, columns 0-based as in Python's ast."""

    kernel: str = ""
    """Kernel that computes it (Triton kernel, extern kernel), or the ATen op on the eager side."""
    name: str = ""
    """Name inside the kernel (`tmp12`) or of the ATen overload."""
    origin: tuple[str, ...] = ()
    """FX nodes this code was made from, where known."""
    module: str = ""
    """Module path, e.g. `model.layers.0.self_attn.q_norm`."""
    file: str = ""
    line: int = 0
    column: int = 0
    end_line: int = 0
    end_column: int = 0
    text: str = ""
    """The source text at that position, at most one line."""
    code: str = ""
    """Generated file (a piece's output code) and `code_line` in it."""
    code_line: int = 0


class Operand(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one input slot reads.

    form `whole`: node nodes[0], reshaped to `shape` (same element order, same count).
    form `affine`: element offset + sum(i * strides) of node nodes[0].
    form `gather`: blob `index` (int32/int64, `shape`) into the concatenated flat elements of `nodes`.
    """

    nodes: tuple[int, ...]
    shape: tuple[int, ...]
    form: Literal["whole", "affine", "gather"] = "whole"
    offset: int = 0
    strides: tuple[int, ...] = ()
    index: int = -1


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """One primitive op. `dtype` names the format for round and leaf nodes, else the arithmetic (float32/float64)."""

    op: str
    shape: tuple[int, ...]
    operands: tuple[Operand, ...] = ()
    attrs: dict[str, Any] = {}
    dtype: str = "float32"
    dynamic: bool = True
    """False for what depends on no token: weights, positions, tables, constants and what is computed from them."""
    site: int = -1

    @property
    def kind(self) -> str:
        return KIND[self.op]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Output(msgspec.Struct, frozen=True):
    """A result of the program, by position; `operand` says what it reads."""

    name: str
    operand: Operand


class Program:
    """nodes in evaluation order (an operand only reads earlier nodes), sites, index blobs, outputs, leaf bits kept.

    `data` holds raw bits of leaves (see dtypes.STORAGE) by node id: all of a function's inputs, and at least small
    leaves and constants of a model.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.sites: list[Site] = []
        self.blobs: list[np.ndarray] = []
        self.outputs: list[Output] = []
        self.data: dict[int, np.ndarray] = {}

    def site(self, node: int) -> Site:
        i = self.nodes[node].site
        return self.sites[i] if i >= 0 else Site()

    def take(self, operand: Operand, flat: Any) -> np.ndarray:
        """Read an operand; `flat(node)` gives the node's elements as a 1-d array (any dtype)."""
        if operand.form == "whole":
            return flat(operand.nodes[0]).reshape(operand.shape)
        if operand.form == "affine":
            base = flat(operand.nodes[0])[operand.offset:]
            strides = tuple(s * base.itemsize for s in operand.strides)
            return np.lib.stride_tricks.as_strided(base, operand.shape, strides, writeable=False)
        if not operand.nodes:
            return np.zeros(operand.shape, np.float32)
        parts = [flat(n) for n in operand.nodes]
        source = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return source[self.blobs[operand.index]].reshape(operand.shape)

    def read_mask(self, operand: Operand, read: np.ndarray, marks: dict[int, np.ndarray]) -> None:
        """Set marks[node][element] for every element of an operand that `read` (bool, operand's shape) selects."""
        if operand.form == "whole":
            marks[operand.nodes[0]] |= read.reshape(-1)
            return
        if operand.form == "affine":
            ids = affine_index(operand)
            marks[operand.nodes[0]][ids[read]] = True
            return
        index = self.blobs[operand.index].reshape(operand.shape)[read]
        start = 0
        for n in operand.nodes:
            size = self.nodes[n].size
            inside = index if len(operand.nodes) == 1 else index[(index >= start) & (index < start + size)] - start
            marks[n][inside] = True
            start += size


def affine_index(operand: Operand) -> np.ndarray:
    """int64 element numbers of an affine operand."""
    ids = np.full(operand.shape, operand.offset, np.int64)
    for axis, (n, stride) in enumerate(zip(operand.shape, operand.strides)):
        ids += (np.arange(n) * stride).reshape([-1 if a == axis else 1 for a in range(len(operand.shape))])
    return ids
