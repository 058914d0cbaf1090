"""Following element ids from a region's outputs to its inputs: all rows at once, lanes in as few classes as they allow."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np

from graphdiff.emit.ir import Input, Lanes, Part, Piece, RowOutput, Value
from graphdiff.program import Operand, Program
from graphdiff.program.dtypes import contains
from graphdiff.program.types import affine_index

SHIFT = 33
MASK = (1 << SHIFT) - 1
MOST_CLASSES = 8
Boundary = Callable[[int, tuple[str, str]], bool]


class Misfit(Exception):
    """Why a value does not fit the row-wise form."""


class Lifter:
    """Follows all rows of an output at once. ids: int64 [tokens, heads, lanes], node << SHIFT | element."""

    def __init__(self, program: Program, tokens: int, width: int, kernel: tuple[str, str], is_boundary: Boundary) -> None:
        self.program, self.tokens, self.width, self.kernel, self.is_boundary = program, tokens, width, kernel, is_boundary
        self._sources: dict[tuple, np.ndarray] = {}
        self._labels: dict[bytes, np.ndarray] = {}
        self._built: dict[bytes, int] = {}
        self._loads: dict[tuple, str] = {}

    def part(self, outputs: list[int], head_major: bool) -> Part:
        size = self.program.nodes[outputs[0]].size
        self.heads = size // self.tokens // self.width
        if head_major and self.heads == 1:
            raise Misfit("a token is one row")
        self.part_ = Part("", self.width, self.heads > 1, heads=self.heads)
        for output in outputs:
            flat = np.arange(size, dtype=np.int64)
            grid = flat.reshape(self.heads, self.tokens, self.width).transpose(1, 0, 2) if head_major else flat.reshape(self.tokens, self.heads, self.width)
            (operand,) = self.program.nodes[output].operands
            ids = self._source(operand)[grid]
            pieces = []
            labels = self._partition(ids)
            for label in np.unique(labels):
                lanes = np.flatnonzero(labels == label)
                value = self._build(ids[:, :, lanes])
                pieces.append(Piece(_progression(lanes), value))
            if not any(self.program.nodes[n].kind == "arith" for p in pieces for v in self.part_.needed([p.value]) for n in self.part_.origin.get(v, ())):
                raise Misfit("it computes nothing")
            pieces.sort(key=lambda p: p.lanes)
            self.part_.outputs.append(RowOutput(f"out{len(self.part_.outputs)}", self.program.nodes[output].dtype, self.width, tuple(pieces), output))
        if self.heads == 1 and self.width == size // self.tokens and not self.part_.reduces and not self.part_.is_pointwise:
            raise Misfit("lanes read other lanes")
        self._check_arithmetic()
        return self.part_

    def _check_arithmetic(self) -> None:
        rows = [i for i in self.part_.inputs if i.role == "row"]
        if not rows:
            raise Misfit("it reads no activation")

    # ---- element ids
    def _source(self, operand: Operand) -> np.ndarray:
        """For each element an operand reads, in its order: node << SHIFT | element."""
        key = (operand.nodes, operand.shape, operand.form, operand.offset, operand.strides, operand.index)
        if key not in self._sources:
            if operand.form == "whole":
                ids = np.arange(int(np.prod(operand.shape, dtype=np.int64)), dtype=np.int64) + (operand.nodes[0] << SHIFT)
            elif operand.form == "affine":
                ids = affine_index(operand).reshape(-1) + (operand.nodes[0] << SHIFT)
            else:
                index = self.program.blobs[operand.index].astype(np.int64)
                starts = np.concatenate(([0], np.cumsum([self.program.nodes[n].size for n in operand.nodes])))
                which = np.searchsorted(starts, index, side="right") - 1
                ids = index - starts[which] + (np.asarray(operand.nodes, np.int64)[which] << SHIFT)
            self._sources[key] = ids
        return self._sources[key]

    def _reads(self, n: int, slot: int, elements: np.ndarray) -> np.ndarray:
        """What these elements of an elementwise node read through operand `slot`."""
        node = self.program.nodes[n]
        operand = node.operands[slot]
        ids = self._source(operand)
        if operand.shape != node.shape and ids.size != node.size or len(operand.shape) != len(node.shape):
            ids = np.broadcast_to(ids.reshape(operand.shape), node.shape).reshape(-1)
        return ids[elements]

    def _reduced(self, n: int, elements: np.ndarray) -> np.ndarray:
        """[tokens, heads, length]: what a reduction's element of each row reads, in order."""
        node = self.program.nodes[n]
        (operand,) = node.operands
        axes = [a % len(operand.shape) for a in node.attrs["axes"]]
        grid = np.moveaxis(self._source(operand).reshape(operand.shape), axes, range(-len(axes), 0)).reshape(node.size, -1)
        return grid[elements[:, :, 0]]

    @staticmethod
    def _is_scalar(ids: np.ndarray) -> bool:
        return bool((ids == ids[:, :, :1]).all())

    # ---- classes of lanes
    def _partition(self, ids: np.ndarray) -> np.ndarray:
        """Labels per lane: within one label every value on the way is one node's, and inputs are read by a fixed step."""
        lanes = ids.shape[2]
        if lanes == 1 or self._is_scalar(ids):
            return np.zeros(lanes, np.int64)
        key = _key(ids)
        if key in self._labels:
            return self._labels[key]
        nodes = ids >> SHIFT
        if not (nodes == nodes[:1, :1]).all():
            raise Misfit("rows are computed by different ops")
        owner = nodes[0, 0]
        result = np.zeros(lanes, np.int64)
        for n in np.unique(owner):
            here = np.flatnonzero(owner == n)
            result[here] = self._partition_of(int(n), ids[:, :, here]) + (result.max() + 1)
        self._labels[key] = _compact(result)
        return self._labels[key]

    def _partition_of(self, n: int, ids: np.ndarray) -> np.ndarray:
        node = self.program.nodes[n]
        elements = ids & MASK
        if self.is_boundary(n, self.kernel):
            return _runs(elements[0, 0])
        if node.op in ("sum", "amax", "amin"):
            raise Misfit("several reductions of one row are read lane by lane")
        labels = np.zeros(ids.shape[2], np.int64)
        for slot in range(len(node.operands)):
            own = self._partition(self._reads(n, slot, elements))
            labels = _compact(labels * (own.max() + 1) + own)
        return labels

    # ---- values
    def _build(self, ids: np.ndarray) -> int:
        if ids.shape[2] > 1 and self._is_scalar(ids):
            ids = ids[:, :, :1]
        key = _key(ids)
        if key not in self._built:
            self._built[key] = self._make(ids)
        return self._built[key]

    def _make(self, ids: np.ndarray) -> int:
        nodes = ids >> SHIFT
        n = int(nodes.flat[0])
        if not (nodes == n).all():
            raise Misfit("a value is put together from several ops where it is reduced")
        node, elements, part = self.program.nodes[n], ids & MASK, self.part_
        if node.op == "const":
            return part.const(node.attrs["value"])
        if self.is_boundary(n, self.kernel):
            return self._load(n, elements)
        if node.op in ("sum", "amax", "amin"):
            if ids.shape[2] != 1:
                raise Misfit("several reductions of one row are read lane by lane")
            read = self._reduced(n, elements)
            if read.shape[2] != self.width:
                raise Misfit(f"it reduces {read.shape[2]} lanes of rows of {self.width}")
            below = self._build(read)
            if part.values[below].lanes != self.width:
                raise Misfit("it reduces a number that all lanes share")
            value = part.add(Value(node.op, (below,), 1))
        elif node.op == "round":
            below = self._build(self._reads(n, 0, elements))
            if part.values[below].op == "load" and contains(node.dtype, part.input(part.values[below].attr[0]).dtype):
                return below  # a copy of what is stored in that format already
            value = part.op("round", below, attr=(node.dtype, node.attrs.get("mode", "rne")))
        elif (inner := self._sigmoid_of(n)) is not None:
            value = part.op("sigmoid", self._build(self._reads(inner, 0, self._chain(n, inner, elements))))
        elif node.kind in ("arith", "exact") and set(node.attrs) <= {"approximate"}:
            value = part.op(node.op, *[self._build(self._reads(n, s, elements)) for s in range(len(node.operands))])
        else:
            raise Misfit(f"{node.op} has no row-wise form")
        part.origin[value] = tuple(sorted({*part.origin.get(value, ()), n}))
        return value

    def _sigmoid_of(self, n: int) -> int | None:
        """The neg node, if div, add, exp and neg were one call of the engine's kernel (tl.sigmoid has bits of its own)."""
        nodes, chain, at = self.program.nodes, [n], n
        for op in ("add", "exp", "neg"):
            below = [m for o in nodes[at].operands for m in o.nodes if nodes[m].op == op]
            if len(below) != 1 or nodes[at].op != {"add": "div", "exp": "add", "neg": "exp"}[op]:
                return None
            at = below[0]
            chain.append(at)
        names = {(self.program.site(m).name, self.place(m)) for m in chain}
        return at if len(names) == 1 and next(iter(names))[0] else None

    def _chain(self, n: int, end: int, elements: np.ndarray) -> np.ndarray:
        """Which elements of `end` the elements of n come from."""
        while n != end:
            for slot, o in enumerate(self.program.nodes[n].operands):
                if all(self.program.nodes[m].op != "const" for m in o.nodes):
                    ids = self._reads(n, slot, elements)
                    n, elements = int(ids.flat[0] >> SHIFT), ids & MASK
                    break
        return elements

    def place(self, n: int) -> tuple[str, str]:
        site = self.program.site(n)
        return site.code, site.kernel

    def _load(self, n: int, elements: np.ndarray) -> int:
        """A load of what enters the region, if its address is a fixed function of token, head and lane."""
        node = self.program.nodes[n]
        first = int(elements[0, 0, 0])
        by_token, by_head = elements[:, 0, 0] - first, elements[0, :, 0] - first
        step = int(elements[0, 0, 1] - first) if elements.shape[2] > 1 else 1
        lane = np.arange(elements.shape[2]) * step
        if not (elements == first + by_token[:, None, None] + by_head[None, :, None] + lane).all():
            raise Misfit(f"{self._label(n)} is read at addresses that do not follow rows")
        if not (by_head == by_head[-1] // max(1, self.heads - 1) * np.arange(self.heads) if self.heads > 1 else by_head == 0).all():
            raise Misfit(f"{self._label(n)} is read at irregular heads")
        per_head = bool(self.heads > 1 and by_head[-1])
        last = node.shape[-1] if node.shape else 1
        at = (tuple(by_token.tolist()), int(by_head[1]) if self.heads > 1 else 0)
        if not by_token.any() and (self.tokens > 1 or not node.dynamic):
            if per_head:
                raise Misfit(f"{self._label(n)} holds numbers of its own for every head")
            return self._slice(n, "vector", first, step, elements.shape[2], False, at)
        if not node.dynamic:
            if per_head:
                raise Misfit(f"{self._label(n)} is a table by token and head")
            return self._slice(n, "table", first - first // last * last, step, elements.shape[2], False, at, first // last * last)
        if self.tokens > 1 and not (by_token == by_token[1] * np.arange(self.tokens)).all():
            raise Misfit(f"{self._label(n)} is read at irregular tokens")
        return self._slice(n, "row" if per_head or self.heads == 1 else "table", first, step, elements.shape[2], per_head, at)

    def _slice(self, n: int, role: str, first: int, step: int, lanes: int, per_head: bool, at: tuple, base: int = 0) -> int:
        """The load as (input, lanes of it). One source read in windows of a row's width is as many inputs."""
        window = min(self.width, at[0][1] if role == "table" and self.tokens > 1 else self.program.nodes[n].size)
        alone = role == "table" and not self.program.nodes[n].dynamic or (first % window) + step * (lanes - 1) >= window
        key = (n, role, per_head, first, step, lanes) if alone else (n, role, per_head, first // window)
        origin = first if alone else first // window * window
        width = lanes if alone and step == 1 else 1 + step * (lanes - 1) if alone else window
        if lanes == 1 and first == 0 and role == "row" and int(np.prod(self.program.nodes[n].shape)) == self.tokens * self.heads:
            width = 1
        if key not in self._loads:
            name = f"in{len(self._loads)}"
            self._loads[key] = name
            node = self.program.nodes[n]
            self.part_.inputs.append(Input(name, role, width, per_head, _dtype(self.program, n), (n, base + origin), at))
        return self.part_.load(self._loads[key], Lanes(first - origin, step, lanes))

    def _label(self, n: int) -> str:
        node = self.program.nodes[n]
        return str(node.attrs.get("name") or self.program.site(n).module or f"{node.op} {n}")


def _dtype(program: Program, n: int) -> str:
    """The format an input is stored in."""
    node = program.nodes[n]
    if node.op == "embedding":
        return _dtype(program, node.operands[0].nodes[0])
    return node.dtype


def _key(ids: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(ids).tobytes() + repr(ids.shape).encode(), digest_size=16).digest()


def _compact(labels: np.ndarray) -> np.ndarray:
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def _runs(elements: np.ndarray) -> np.ndarray:
    """Lanes cut into stretches of a fixed step: one, runs (rotate_half), or even and odd (interleaved)."""
    steps = np.diff(elements)
    if steps.size == 0 or (steps == steps[0]).all():
        return np.zeros(elements.size, np.int64)
    even, odd = elements[0::2], elements[1::2]
    if elements.size % 2 == 0 and all((np.diff(e) == np.diff(e)[0]).all() for e in (even, odd) if e.size > 1) and elements.size > 4:
        return np.arange(elements.size) % 2
    labels = np.concatenate(([0], np.cumsum(steps != steps[0])))
    if labels[-1] > MOST_CLASSES:
        raise Misfit("lanes are read in no fixed order")
    return labels.astype(np.int64)


def _progression(lanes: np.ndarray) -> Lanes:
    step = int(lanes[1] - lanes[0]) if lanes.size > 1 else 1
    if not (np.diff(lanes) == step).all():
        raise Misfit("an output's lanes are computed in no fixed order")
    return Lanes(int(lanes[0]), step, int(lanes.size))
