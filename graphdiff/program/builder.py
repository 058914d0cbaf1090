"""Building a program by abstract evaluation: storages that know, per element, who produced them.

A lowering never copies numbers. It moves `Elements` (which element of which node) with the layout ops of the side it
reads, keeps integers concrete, and calls `Builder.op` / `Builder.round` where the side computes or rounds. Numbers are
evaluated only on demand (`Builder.numbers`), for the few branches that depend on them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphdiff.errors import GraphdiffError
from graphdiff.program.dtypes import STORAGE
from graphdiff.program.evaluate import Evaluation
from graphdiff.program.types import Node, Operand, Output, Program, Site

SHIFT = 33
MASK = (1 << SHIFT) - 1
MATERIALISE_LIMIT = 1 << 26


class Elements:
    """A float tensor during lowering: for each element, `node << SHIFT | element number`.

    Either `ids` (int64 array of the tensor's shape) or, for (views of) big leaves, affine: node, offset, strides.
    """

    __slots__ = ("_ids", "node", "offset", "shape", "strides")

    def __init__(self, shape: Sequence[int], *, ids: np.ndarray | None = None, node: int = -1, offset: int = 0,
                 strides: Sequence[int] = ()) -> None:
        self.shape, self._ids, self.node, self.offset = tuple(int(s) for s in shape), ids, node, offset
        self.strides = tuple(strides)

    @classmethod
    def whole(cls, node: int, shape: Sequence[int]) -> Elements:
        return cls(shape, node=node, strides=contiguous(shape))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_affine(self) -> bool:
        return self.node >= 0

    @property
    def ids(self) -> np.ndarray:
        if self._ids is None:
            if self.size > MATERIALISE_LIMIT:
                raise GraphdiffError(f"a layout of {self.size} elements of a leaf is too big to follow element by element",
                                     fix="capture fewer layers or narrower widths")
            flat = np.full(self.shape, (self.node << SHIFT) + self.offset, np.int64)
            for axis, (n, stride) in enumerate(zip(self.shape, self.strides)):
                flat += (np.arange(n) * stride).reshape([-1 if a == axis else 1 for a in range(len(self.shape))])
            self._ids_cache(flat)
            return flat
        return self._ids

    def _ids_cache(self, flat: np.ndarray) -> None:
        # Views of one node keep their affine form too: operand() prefers it when it is the shorter description.
        if self.size <= 1 << 16:
            self._ids = flat

    def reshape(self, *shape: int) -> Elements:
        if self.is_affine and self.strides == contiguous(self.shape):
            return Elements(shape, node=self.node, offset=self.offset, strides=contiguous(shape))
        return Elements(shape, ids=self.ids.reshape(shape))

    def map(self, function: Any) -> Elements:
        """Any pure data movement, given as a function on the array of element ids."""
        ids = np.asarray(function(self.ids))
        return Elements(ids.shape, ids=ids)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(tuple(shape)):
        strides.append(step)
        step *= int(n)
    return tuple(reversed(strides))


class Builder:
    """Makes a Program. `site` is the provenance given to new nodes until it is changed."""

    def __init__(self) -> None:
        self.program = Program()
        self.site = Site()
        self.leaf_bits: dict[int, np.ndarray] = {}
        """Raw bits of every leaf while the capture lives (a superset of program.data)."""
        self._sites: dict[Site, int] = {}
        self._blobs: dict[bytes, int] = {}
        self._consts: dict[tuple, int] = {}
        self._evaluation: Evaluation | None = None

    # ---- leaves
    def leaf(self, name: str, raw: np.ndarray, dtype: str, *, dynamic: bool = False, keep: bool | None = None,
             **attrs: Any) -> Elements:
        """A parameter, input or table: `raw` bits (dtypes.STORAGE[dtype]) of the tensor's shape, contiguous order.

        keep: store the bits in the capture; default: leaves of at most 65536 elements.
        """
        raw = np.asarray(raw)
        if raw.dtype != STORAGE[dtype]:
            raise TypeError(f"leaf {name}: {raw.dtype} bits for {dtype}")
        node = self._add("leaf", raw.shape, (), {"name": name, **attrs}, dtype, dynamic)
        self.leaf_bits[node] = raw.reshape(-1)
        if keep if keep is not None else raw.size <= 1 << 16:
            self.program.data[node] = self.leaf_bits[node]
        return Elements.whole(node, raw.shape)

    def const(self, value: float) -> Elements:
        """A scalar constant, shape ()."""
        return Elements.whole(self._const(float(value)), ())

    def const_array(self, values: np.ndarray, dtype: str = "float32", *, dynamic: bool = False) -> Elements:
        """Concrete numbers that turn into floats (arange, masks): a leaf named `const`, interned."""
        values = np.asarray(values)
        if values.size and (values == values.flat[0]).all() and not dynamic:
            node = self._const(float(values.flat[0]))
            return Elements(values.shape, node=node, strides=(0,) * values.ndim)
        raw = np.ascontiguousarray(values, np.float64 if dtype == "float64" else np.float32)
        key = (raw.shape, dynamic, str(raw.dtype), hashlib.sha256(raw.tobytes()).digest())
        if key not in self._consts:
            name = "float64" if raw.dtype == np.float64 else "float32"
            self._consts[key] = self.leaf("const", raw, name, dynamic=dynamic).node
        return Elements.whole(self._consts[key], raw.shape)

    def _const(self, value: float) -> int:
        key = ("scalar", np.float64(value).tobytes())
        if key not in self._consts:
            self._consts[key] = self._add("const", (), (), {"value": value}, "float32", False)
        return self._consts[key]

    # ---- ops
    def op(self, op: str, *ins: Elements | float, shape: Sequence[int] | None = None, dynamic: bool | None = None,
           **attrs: Any) -> Elements:
        """A primitive op of ops.KIND. Operands broadcast as numpy does; floats become constants.

        `shape` is needed where it does not follow from broadcasting (mm, attention, sum, amax, opaque).
        x + 0, 0 + x and x - 0 are x itself: accumulators start from zero.
        """
        elements = [self.const(x) if isinstance(x, (int, float)) else x for x in ins]
        if op in ("add", "sub") and (plain := self._plus_zero(op, elements)) is not None:
            return plain
        operands = tuple(self.operand(e) for e in elements)
        if shape is None:
            shape = self._shape_of(op, [e.shape for e in elements], attrs)
        if dynamic is None:
            dynamic = any(self.program.nodes[n].dynamic for o in operands for n in o.nodes)
        node = self._add(op, tuple(int(s) for s in shape), operands, attrs, "float32", dynamic)
        return Elements.whole(node, shape)

    def round(self, x: Elements, dtype: str, mode: str = "rne") -> Elements:
        """Round to `dtype`. Always a node: whether it changes anything is the probe's business."""
        if dtype in ("float32", "float64"):
            return x
        attrs = {} if mode == "rne" else {"mode": mode}
        operand = self.operand(x)
        dynamic = any(self.program.nodes[n].dynamic for n in operand.nodes)
        return Elements.whole(self._add("round", x.shape, (operand,), attrs, dtype, dynamic), x.shape)

    def output(self, name: str, x: Elements) -> None:
        self.program.outputs.append(Output(name, self.operand(x)))

    def numbers(self, x: Elements) -> np.ndarray:
        """float32 numbers of x under the schedule, from the real leaf bits (evaluated on demand, cached)."""
        if self._evaluation is None:
            self._evaluation = Evaluation(self.program, self.leaf_bits)
        return self._evaluation.read(self.operand(x))

    def _plus_zero(self, op: str, elements: list[Elements]) -> Elements | None:
        for keep, zero in ((0, 1), (1, 0)) if op == "add" else ((0, 1),):
            z, x = elements[zero], elements[keep]
            if z.node >= 0 and self.program.nodes[z.node].op == "const" and self.program.nodes[z.node].attrs["value"] == 0:
                shape = np.broadcast_shapes(x.shape, z.shape)
                return x if shape == x.shape else x.map(lambda ids: np.broadcast_to(ids, shape))
        return None

    @staticmethod
    def _shape_of(op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any]) -> tuple[int, ...]:
        if op == "mm":
            batch = np.broadcast_shapes(shapes[0][:-2], shapes[1][:-2])
            return (*batch, shapes[0][-2], shapes[1][-1])
        if "axes" in attrs:
            drop = {a % len(shapes[0]) for a in attrs["axes"]}
            return tuple(n for i, n in enumerate(shapes[0]) if i not in drop)
        if op == "attention":
            return (*shapes[0][:-1], shapes[2][-1])
        return np.broadcast_shapes(*shapes)

    # ---- operands
    def operand(self, x: Elements) -> Operand:
        """The shortest description of what x reads (whole, affine, gather with an interned index)."""
        if x.is_affine:
            node = self.program.nodes[x.node]
            if x.offset == 0 and x.strides == contiguous(x.shape) and node.size == x.size:
                return Operand((x.node,), x.shape)
            return Operand((x.node,), x.shape, "affine", x.offset, x.strides)
        flat = x.ids.reshape(-1)
        if flat.size == 0:
            return Operand((), x.shape, "gather", index=self._blob(np.zeros(0, np.int32)))
        owners = flat >> SHIFT
        first = int(owners[0])
        if (owners == first).all():
            local = flat & MASK
            if local.size == self.program.nodes[first].size and _is_arange(local):
                return Operand((first,), x.shape)
            return Operand((first,), x.shape, "gather", index=self._blob(local))
        nodes, inverse = np.unique(owners, return_inverse=True)
        starts = np.concatenate(([0], np.cumsum([self.program.nodes[int(n)].size for n in nodes[:-1]])))
        local = (flat & MASK) + starts[inverse]
        return Operand(tuple(int(n) for n in nodes), x.shape, "gather", index=self._blob(local))

    def _blob(self, index: np.ndarray) -> int:
        small = index.astype(np.int32 if index.size == 0 or index.max() < 2**31 else np.int64)
        key = hashlib.sha256(small.tobytes() + small.dtype.str.encode()).digest()
        if key not in self._blobs:
            self._blobs[key] = len(self.program.blobs)
            self.program.blobs.append(small)
        return self._blobs[key]

    def _add(self, op: str, shape: Sequence[int], operands: tuple[Operand, ...], attrs: dict[str, Any], dtype: str,
             dynamic: bool) -> int:
        if self.site not in self._sites:
            self._sites[self.site] = len(self.program.sites)
            self.program.sites.append(self.site)
        self.program.nodes.append(Node(op, tuple(int(s) for s in shape), operands, attrs, dtype, dynamic, self._sites[self.site]))
        return len(self.program.nodes) - 1


def _is_arange(a: np.ndarray) -> bool:
    return bool(a[0] == 0 and a[-1] == a.size - 1 and (np.diff(a) == 1).all())


class Storage:
    """Memory of a side being lowered: element ids of floats, or concrete integers. -1 marks uninitialised elements."""

    def __init__(self, size: int, dtype: str, *, node: int = -1, ints: np.ndarray | None = None, dynamic: bool = False) -> None:
        self.size, self.dtype, self.node, self.ints, self.dynamic = size, dtype, node, ints, dynamic
        self._ids: np.ndarray | None = None

    @classmethod
    def of_leaf(cls, elements: Elements, dtype: str) -> Storage:
        """A leaf's memory: no ids are made until something writes to it or reads it by index."""
        return cls(elements.size, dtype, node=elements.node)

    @property
    def ids(self) -> np.ndarray:
        if self._ids is None:
            if self.node >= 0:
                self._ids = np.arange(self.size, dtype=np.int64) + (self.node << SHIFT)
            else:
                self._ids = np.full(self.size, -1, np.int64)
        return self._ids

    def view(self, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> Elements:
        """Strided view (in elements, strides from 0 up), as torch's as_strided. Raises IndexError beyond the memory."""
        last = offset + sum((n - 1) * s for n, s in zip(shape, strides)) if all(shape) else offset
        if offset < 0 or any(s < 0 for s in strides) or all(shape) and last >= self.size or last > self.size:
            raise IndexError(f"a view of elements {offset} to {last} of memory that holds {self.size}")
        if self._ids is None and self.node >= 0:
            return Elements(shape, node=self.node, offset=int(offset), strides=tuple(int(s) for s in strides))
        base = self.ids[offset:]
        ids = np.lib.stride_tricks.as_strided(base, tuple(shape), tuple(int(s) * 8 for s in strides), writeable=False)
        return Elements(shape, ids=ids)

    def load(self, index: np.ndarray) -> Elements:
        """Elements at integer positions `index` (any shape). Raises IndexError for what was never written."""
        if self._ids is None and self.node >= 0:
            ids = (self.node << SHIFT) + index.astype(np.int64)
        else:
            ids = self.ids[index]
        if ids.size and ids.min() < 0:
            raise IndexError("read of memory that was never written")
        return Elements(ids.shape, ids=ids)

    def store(self, index: np.ndarray, x: Elements) -> None:
        self.ids[index] = x.ids.reshape(index.shape)
