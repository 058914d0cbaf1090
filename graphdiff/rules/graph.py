"""What rules see of a side: values and who reads them, with recomputed values known as one.

The side is `graphdiff.compare.side.Side`, or anything with its `program`, `bases_of_node`, `bases`, `consumer` and
`readers`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from graphdiff.program.ops import COMMUTATIVE
from graphdiff.program.types import Operand
from graphdiff.rules.calls import Calls

FAR = 200
"""Values looked at downstream of one moved value."""

READERS = 8
"""Readers of one value that are followed: a table is read by every layer, and one of them is enough to know it."""


class ValueGraph:
    """The value graph of one side, asked locally and remembered."""

    def __init__(self, side: Any) -> None:
        self.side, self.program = side, side.program
        self.calls = Calls(side)
        self._canonical: dict[int, int] = {}
        self._known: dict[tuple, int] = {}
        self._reads: dict[int, list[tuple[Operand, tuple[int, ...]]]] = {}
        self._readers: dict[int, list[int]] = {}

    # ---- operands
    def operand_bases(self, operand: Operand) -> tuple[int, ...]:
        """Bases of what an operand reads; constants only if there is nothing else."""
        if len(operand.nodes) == 1:
            return self.side.bases_of_node(operand.nodes[0])
        found = {b for m in operand.nodes for b in self.side.bases_of_node(m)}
        return tuple(sorted({b for b in found if self.program.nodes[b].op != "const"} or found))

    def reads(self, node: int) -> list[tuple[Operand, tuple[int, ...]]]:
        """A node's operands with their bases."""
        if node not in self._reads:
            self._reads[node] = [(o, self.operand_bases(o)) for o in self.program.nodes[node].operands]
        return self._reads[node]

    def passes(self, operand: Operand, op: str) -> bool:
        """True if an exact op of this name lies between the operand and a base."""
        todo, seen = list(operand.nodes), set()
        while todo:
            m = todo.pop()
            if m in seen or not self.side.is_exact(m):
                continue
            if self.program.nodes[m].op == op:
                return True
            seen.add(m)
            todo += [k for o in self.program.nodes[m].operands for k in o.nodes]
        return False

    # ---- values
    def canonical(self, node: int) -> int:
        """A base's number, the same for bases that apply the same op to the same values (recomputation).

        Layout does not count: the halves of one value have one number. Of anchors it does.
        """
        todo = [node]
        while todo:
            n = todo[-1]
            if n in self._canonical:
                todo.pop()
                continue
            entry = self.program.nodes[n]
            if entry.kind == "anchor":  # a token embedding read again in every loop
                key = (entry.op, entry.operands, repr(sorted(entry.attrs.items())))
                self._canonical[n] = self._known.setdefault(key, n)
                todo.pop()
                continue
            if entry.kind != "arith":
                self._canonical[n] = n
                todo.pop()
                continue
            read = [bases for _, bases in self.reads(n)]
            missing = [b for bases in read for b in bases if b not in self._canonical]
            if missing:
                todo += missing
                continue
            parts = [tuple(sorted({self._canonical[b] for b in bases})) for bases in read]
            key = (entry.op, tuple(sorted(parts) if entry.op in COMMUTATIVE else parts))
            self._canonical[n] = self._known.setdefault(key, n)
            todo.pop()
        return self._canonical[node]

    def same(self, a: tuple[int, ...], b: tuple[int, ...]) -> bool:
        """True if one set of bases holds the other."""
        if a == b:
            return True
        x, y = ({self.canonical(n) for n in bases} for bases in (a, b))
        return x <= y or y <= x

    def read_by(self, base: int) -> list[int]:
        """Nodes that read a base, in order."""
        if base not in self._readers:
            rows = self.side.readers.get(base, ())
            self._readers[base] = sorted({self.side.consumer[row] for row in rows if self.side.consumer[row] >= 0})
        return self._readers[base]

    def downstream(self, base: int, depth: int, readers: list[int]) -> list[tuple[int, int]]:
        """(node, steps) of values formed from a base through these readers of it, nearest first, the base at 0."""
        found, seen = [(base, 0)], {base}
        level = [c for c in self.read_by(base) if c in readers or not readers][:READERS]
        for step in range(1, depth + 1):
            level = [c for c in level if not (c in seen or seen.add(c))]
            found += [(c, step) for c in level]
            if not level or len(found) > FAR:
                break
            level = [c for b in level for c in self.read_by(b)[:READERS]]
        return found

    # ---- layout
    def span(self, root: int, base: int, depth: int = 4) -> tuple[int, int] | None:
        """First and last element of `base` that is read within `depth` steps above `root`; None if layout hides it."""
        low, high = None, None
        todo = [(root, depth)]
        while todo:
            n, left = todo.pop()
            for o in self.program.nodes[n].operands:
                for m in o.nodes:
                    if base in self.side.bases_of_node(m) and (m == base or self.side.is_exact(m)):
                        first, last = self._extent(o, m)
                        low = first if low is None else min(low, first)
                        high = last if high is None else max(high, last)
                    elif left:
                        todo += [(b, left - 1) for b in self.side.bases_of_node(m) if self.program.nodes[b].kind == "arith"]
        return None if low is None else (low, high)

    def _extent(self, o: Operand, m: int) -> tuple[int, int]:
        """First and last element of node `m` that an operand reads."""
        if o.form == "whole":
            return 0, self.program.nodes[m].size - 1
        if o.form == "affine":
            ends = [(n - 1) * s for n, s in zip(o.shape, o.strides)]
            return o.offset + sum(min(e, 0) for e in ends), o.offset + sum(max(e, 0) for e in ends)
        index = self.picked(o, m)
        return (int(index.min()), int(index.max())) if index.size else (0, 0)

    def picked(self, o: Operand, m: int) -> np.ndarray:
        """Elements of node `m` that a gather reads; masked lanes read a constant beside it and do not count."""
        index = self.program.blobs[o.index]
        start = sum(self.program.nodes[k].size for k in o.nodes[:o.nodes.index(m)])
        return index[(index >= start) & (index < start + self.program.nodes[m].size)] - start

    # ---- roundings to 8 bits
    @cached_property
    def fp8(self) -> set[int]:
        """Bases that are rounded to an 8-bit float, straight or through exact ops."""
        return {b for n, node in enumerate(self.program.nodes) if node.op == "round" and node.dtype.startswith("float8")
                for b in self.operand_bases(node.operands[0])}
