"""May this data be a program? Every number that later code indexes, strides or allocates with is checked here.

Evaluation reads operands with numpy strides: an affine operand out of its node's bounds would read foreign memory.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from graphdiff.program import Node, Operand, Output, Site
from graphdiff.program.dtypes import FORMATS, MODES, STORAGE
from graphdiff.program.ops import BINARY, EXACT_BINARY, EXACT_UNARY, KIND, REDUCE, REDUCE_EXACT, SCAN, UNARY
from graphdiff.store.container import MAX_DIMENSIONS, MAX_ELEMENTS, ArrayInfo

MAX_NODES = 1 << 18
ANY = 1 << 30
ARITY: dict[str, tuple[int, int]] = {
    **dict.fromkeys(UNARY, (1, 1)), **dict.fromkeys(EXACT_UNARY, (1, 1)), **dict.fromkeys(BINARY, (2, 2)),
    **dict.fromkeys(EXACT_BINARY, (2, 2)), **dict.fromkeys(REDUCE, (1, 1)), **dict.fromkeys(REDUCE_EXACT, (1, 1)),
    **dict.fromkeys(SCAN, (1, 1)), "sum": (1, 1), "round": (1, 1), "leaf": (0, 0), "const": (0, 0), "mm": (2, 2),
    "attention": (3, 4), "embedding": (1, ANY), "opaque": (0, ANY),
}
"""Least and largest number of operands."""
REDUCTIONS = frozenset({"sum", *REDUCE, *REDUCE_EXACT})
STRIDE_LIMIT = 1 << 40
INDEX_TYPES = ("int32", "int64")


class Invalid(Exception):
    """What is wrong, in a few words (the reader adds the file)."""


class Parts(msgspec.Struct):
    """A program's parts as they stand in the file. blobs: descriptions; data: (leaf, description)."""

    nodes: list[Node]
    sites: list[Site]
    outputs: list[Output]
    blobs: list[ArrayInfo]
    data: list[tuple[int, ArrayInfo]]


def check_program(parts: Parts) -> list[int]:
    """The bound for each blob's indices (element numbers must be below it). Raises Invalid.

    Lists in attributes become tuples, as the builder makes them.
    """
    if len(parts.nodes) > MAX_NODES:
        raise Invalid(f"{len(parts.nodes)} nodes are more than the limit of {MAX_NODES}")
    for i, site in enumerate(parts.sites):
        if min(site.line, site.column, site.end_line, site.end_column, site.code_line) < 0 or site.line > 1 << 31:
            raise Invalid(f"site {i} is no place in a text")
    check = _Check(parts)
    for i, node in enumerate(parts.nodes):
        try:
            check.node(i, node)
        except Invalid as e:
            raise Invalid(f"node {i} ({_short(node.op)}): {e}") from None
    names = set()
    for output in parts.outputs:
        if output.name in names:
            raise Invalid(f"two outputs are called {_short(output.name)}")
        names.add(output.name)
        try:
            check.operand(output.operand, len(parts.nodes))
        except Invalid as e:
            raise Invalid(f"output {_short(output.name)}: {e}") from None
    _check_data(parts, check.sizes)
    return check.limits


def check_index(array: np.ndarray, limit: int) -> None:
    """A gather index as it is loaded. Raises Invalid."""
    if array.size and (array.min() < 0 or array.max() >= limit):
        raise Invalid(f"an index array points outside the {limit} elements it selects from")


def _check_data(parts: Parts, sizes: list[int]) -> None:
    seen = set()
    for n, info in parts.data:
        if not 0 <= n < len(sizes) or not _holds_numbers(parts.nodes[n]):
            raise Invalid(f"numbers are given for node {n}, which is no leaf")
        if n in seen:
            raise Invalid(f"numbers are given twice for node {n}")
        seen.add(n)
        held = STORAGE[parts.nodes[n].dtype] if parts.nodes[n].op == "leaf" else np.float32
        if np.dtype(held).name != info.dtype or info.shape != (sizes[n],):
            raise Invalid(f"the numbers given for node {n} do not have its type and size")


def _holds_numbers(node: Node) -> bool:
    """A leaf, or what its operands do not tell: an opaque op's output, a stochastic rounding (float32)."""
    return node.op in ("leaf", "opaque") or node.op == "round" and node.attrs.get("mode") == "stochastic"


class _Check:
    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.sizes: list[int] = []
        self.limits = [MAX_ELEMENTS] * len(parts.blobs)
        self._sizes_of: dict[tuple[int, ...], int] = {}

    def size(self, shape: tuple[int, ...]) -> int:
        size = self._sizes_of.get(shape)
        if size is None:
            if len(shape) > MAX_DIMENSIONS:
                raise Invalid(f"a shape has {len(shape)} dimensions, the limit is {MAX_DIMENSIONS}")
            if any(not 0 <= n <= MAX_ELEMENTS for n in shape) or (size := math.prod(shape)) > MAX_ELEMENTS:
                raise Invalid(f"the shape {_short(shape)} is out of range")
            self._sizes_of[shape] = size
        return size

    def node(self, i: int, node: Node) -> None:
        size = self.size(node.shape)
        arity = ARITY.get(node.op)
        if arity is None:
            raise Invalid("no such op")
        if node.dtype not in FORMATS:
            raise Invalid(f"no such format: {_short(node.dtype)}")
        if not -1 <= node.site < len(self.parts.sites):
            raise Invalid(f"its site {node.site} is not one of {len(self.parts.sites)}")
        if not arity[0] <= len(node.operands) <= arity[1]:
            raise Invalid(f"it cannot have {len(node.operands)} operands")
        for operand in node.operands:
            self.operand(operand, i)
        if node.attrs:
            _check_attrs(node.attrs)
        # flat() of a node must have exactly this many elements, or reading an operand leaves its memory.
        rule = RULES.get(node.op, _elementwise)
        rule(node, [o.shape for o in node.operands])
        self.sizes.append(size)

    def operand(self, operand: Operand, reader: int) -> None:
        size = self.size(operand.shape)
        for n in operand.nodes:
            if not 0 <= n < reader:
                raise Invalid(f"it reads node {n}, which is not an earlier one")
        form = operand.form
        if form == "gather":
            self._gather(operand, size)
            return
        if len(operand.nodes) != 1:
            raise Invalid(f"an operand of form {form} reads {len(operand.nodes)} nodes, not one")
        source = self.sizes[operand.nodes[0]]
        if form == "whole":
            if size != source:
                raise Invalid(f"it reads {size} elements as all of node {operand.nodes[0]}, which has {source}")
            return
        if len(operand.strides) != len(operand.shape):
            raise Invalid(f"{len(operand.strides)} strides for {len(operand.shape)} dimensions")
        if any(not -STRIDE_LIMIT <= s <= STRIDE_LIMIT for s in operand.strides):
            raise Invalid("a stride is out of range")
        low = high = operand.offset
        if size:
            for n, stride in zip(operand.shape, operand.strides):
                if stride < 0:
                    low += (n - 1) * stride
                else:
                    high += (n - 1) * stride
        if low < 0 or high >= source + (not size):
            raise Invalid(f"it reads elements {low} to {high} of node {operand.nodes[0]}, which has {source}")

    def _gather(self, operand: Operand, size: int) -> None:
        i = operand.index
        if not 0 <= i < len(self.limits):
            raise Invalid(f"its index array {i} is not one of {len(self.limits)}")
        info = self.parts.blobs[i]
        if info.dtype not in INDEX_TYPES:
            raise Invalid(f"its index array {i} holds {info.dtype}")
        if info.elements != size:
            raise Invalid(f"its index array {i} has {info.elements} elements for {size}")
        source = sum(self.sizes[n] for n in operand.nodes)
        if size and not source:
            raise Invalid("it selects elements from nothing")
        if source < self.limits[i] and size:
            self.limits[i] = source


# ---- attributes
def _check_attrs(attrs: dict[str, Any]) -> None:
    for key, value in attrs.items():
        if value.__class__ in PLAIN:
            continue
        attrs[key] = _frozen(value, 4)


PLAIN = frozenset({str, int, float, bool, type(None)})


def _frozen(value: Any, depth: int) -> Any:
    """The value with lists as tuples. Raises Invalid for what is not plain data or nested deeper than `depth`."""
    if value.__class__ in PLAIN:
        return value
    if depth and isinstance(value, (list, tuple)):
        return tuple(_frozen(v, depth - 1) for v in value)
    if depth and isinstance(value, dict) and all(isinstance(k, str) for k in value):
        return {k: _frozen(v, depth - 1) for k, v in value.items()}
    raise Invalid(f"an attribute holds a {type(value).__name__} or is nested too deeply")


def check_plain(value: Any, depth: int = 16) -> None:
    """JSON-like data only (a model's config). Raises Invalid."""
    _frozen(value, depth)


# ---- shapes, as evaluation needs them
Shapes = list[tuple[int, ...]]


def _broadcast(shapes: Shapes) -> tuple[int, ...]:
    try:
        return _broadcast_shapes(tuple(shapes))
    except ValueError:
        raise Invalid(f"operands of shapes {_short(shapes)} do not go together") from None


@functools.lru_cache(maxsize=4096)
def _broadcast_shapes(shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    return np.broadcast_shapes(*shapes)


def _gives(node: Node, shape: tuple[int, ...]) -> None:
    if shape != node.shape and _broadcast([shape, node.shape]) != node.shape:
        raise Invalid(f"it computes the shape {_short(shape)}, not {_short(node.shape)}")


def _elementwise(node: Node, shapes: Shapes) -> None:
    if all(s == node.shape for s in shapes):
        return
    _gives(node, _broadcast(shapes))


def _embedding(node: Node, shapes: Shapes) -> None:
    _gives(node, shapes[0])


def _reduction(node: Node, shapes: Shapes) -> None:
    (shape,) = shapes
    axes = node.attrs.get("axes")
    if not isinstance(axes, tuple):
        raise Invalid("its attribute axes is not a list")
    drop = {_axis(a, len(shape)) for a in axes}
    if len(drop) != len(axes):
        raise Invalid("an axis is named twice")
    if node.op in REDUCE_EXACT and any(not shape[a] for a in drop):
        raise Invalid("it has no elements to choose from")
    _gives(node, tuple(n for a, n in enumerate(shape) if a not in drop))


def _scan(node: Node, shapes: Shapes) -> None:
    _axis(node.attrs.get("axis"), len(shapes[0]))
    _gives(node, shapes[0])


def _axis(axis: Any, dimensions: int) -> int:
    if axis.__class__ is not int or not -dimensions <= axis < dimensions:
        raise Invalid(f"axis {_short(axis)} of {dimensions} dimensions")
    return axis % dimensions


def _round(node: Node, shapes: Shapes) -> None:
    if node.attrs.get("mode", "rne") not in MODES:
        raise Invalid("no such rounding mode")
    if shapes[0] != node.shape:
        raise Invalid(f"it rounds the shape {_short(shapes[0])} to {_short(node.shape)}")


def _const(node: Node, shapes: Shapes) -> None:
    if node.attrs.get("value").__class__ not in (int, float):
        raise Invalid("its value is not a number")
    if node.shape != ():
        raise Invalid("a constant is a single number")


def _leaf(node: Node, shapes: Shapes) -> None:
    if not isinstance(node.attrs.get("name", ""), str):
        raise Invalid("its name is not a text")


def _mm(node: Node, shapes: Shapes) -> None:
    a, b = shapes
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise Invalid(f"a product of shapes {_short(shapes)}")
    _gives(node, (*_broadcast([a[:-2], b[:-2]]), a[-2], b[-1]))


def _attention(node: Node, shapes: Shapes) -> None:
    q, k, v = shapes[:3]
    if min(len(q), len(k), len(v)) < 3 or not q[-3] or not k[-3] or not k[-2] or q[-3] % k[-3]:
        raise Invalid(f"attention over shapes {_short(shapes)}")
    if q[-1] != k[-1] or k[-2] != v[-2] or k[-3] != v[-3]:
        raise Invalid(f"attention over shapes {_short(shapes)}")
    if node.attrs.get("scale").__class__ not in (int, float) or node.attrs.get("causal").__class__ not in (bool, type(None)):
        raise Invalid("its scale or causal attribute has the wrong type")
    sinks = node.attrs.get("sinks") or []
    if node.attrs.get("softcap", 0).__class__ not in (int, float) or not isinstance(sinks, (list, tuple)):
        raise Invalid("its softcap or sinks attribute has the wrong type")
    if sinks and (len(sinks) != q[-3] or any(s.__class__ not in (int, float) for s in sinks)):
        raise Invalid("its sinks are no number per head")
    scores = (*_broadcast([q[:-2], (*k[:-3], q[-3])]), q[-2], k[-2])
    if len(shapes) > 3:
        if len(masked := _broadcast([scores, shapes[3]])) != len(scores) or masked[-2:] != scores[-2:]:
            raise Invalid(f"a mask of shape {_short(shapes[3])}")
        scores = masked
    if math.prod(scores) > MAX_ELEMENTS:
        raise Invalid(f"attention over shapes {_short(shapes)}")
    _gives(node, (*_broadcast([scores[:-2], (*v[:-3], q[-3])]), q[-2], v[-1]))


RULES: dict[str, Callable[[Node, Shapes], None]] = {
    **dict.fromkeys(REDUCTIONS, _reduction), **dict.fromkeys(SCAN, _scan), "round": _round, "const": _const, "leaf": _leaf,
    "mm": _mm, "attention": _attention, "embedding": _embedding, "opaque": lambda node, shapes: None,
}
assert set(ARITY) == set(KIND)


def _short(x: Any) -> str:
    text = str(x)
    return text if len(text) <= 60 else text[:60] + "..."
