"""The row-wise form of a region: what a kernel computes for one row, free of the probe's number of tokens.

A part has rows (token x head) of `width` lanes. A value is either one number per lane of some lanes (`lanes` > 1 or a
class of lanes) or one number per row (`lanes` == 1). Data movement exists only where values enter and leave: a load
names input, first lane, lane step and count; an output piece the same. Values are hash-consed, so recomputation in the
engine's code is one value here, and the order of operands is the engine's.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Role = Literal["row", "vector", "table", "grad"]


class Lanes(NamedTuple):
    """Lanes start, start + step, ... of a row."""

    start: int
    step: int
    count: int

    def index(self) -> range:
        return range(self.start, self.start + self.step * self.count, self.step)


@dataclass(frozen=True)
class Input:
    """One tensor a part reads.

    row: [tokens, heads, width], or [tokens, width] if not per_head; differentiable. vector: [width], the same for
    every row (a weight; differentiable). table: [tokens, width], never differentiated (cos, sin). grad: the gradient
    of an output, laid out as a row.
    """

    name: str
    role: Role
    width: int
    per_head: bool
    dtype: str
    source: tuple[int, int] = (-1, 0)
    """(node of the program, element of token 0, head 0 and lane 0): where the probe's numbers are."""
    at: tuple[tuple[int, ...], int] = field(default=((), 0), compare=False)
    """(each token's distance from token 0, a head's from the one before), in elements of the source."""


@dataclass(frozen=True)
class Value:
    """op is a primitive op of program.ops, or load, const, round, or `sigmoid` where the engine calls tl.sigmoid."""

    op: str
    args: tuple[int, ...]
    lanes: int
    attr: tuple = ()


@dataclass(frozen=True)
class Piece:
    """value -> these lanes of the output."""

    lanes: Lanes
    value: int


@dataclass(frozen=True)
class RowOutput:
    """One rounded tensor that leaves the part; dtype is what the store rounds to (by the pointer)."""

    name: str
    dtype: str
    width: int
    pieces: tuple[Piece, ...]
    node: int = -1
    """The round node of the program."""


@dataclass(frozen=True)
class VectorOutput:
    """A weight's gradient: `value` summed over all rows, in FP32, put on these lanes."""

    name: str
    width: int
    pieces: tuple[Piece, ...]


@dataclass
class Part:
    """Rows of one shape and what is computed for each."""

    name: str
    width: int
    per_head: bool
    inputs: list[Input] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    outputs: list[RowOutput] = field(default_factory=list)
    vectors: list[VectorOutput] = field(default_factory=list)
    origin: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """value -> nodes of the engine's program that compute it."""
    heads: int = 1
    carried: int = -1
    """Value that an earlier region computes as well (the inner sum of the residual): its gradient is handed there."""
    carries: int = -1
    """Value that a later region computes as well: its gradient comes back from there."""
    bind: dict[str, str] = field(default_factory=dict)
    """Name of an input or output here -> name of the region's tensor (q and k share one function of `x`)."""
    _known: dict[Value, int] = field(default_factory=dict, repr=False)

    # ---- building
    def add(self, value: Value) -> int:
        if value not in self._known:
            self._known[value] = len(self.values)
            self.values.append(value)
        return self._known[value]

    def const(self, number: float) -> int:
        return self.add(Value("const", (), 1, (float(number),)))

    def load(self, name: str, lanes: Lanes) -> int:
        return self.add(Value("load", (), lanes.count, (name, *lanes)))

    def op(self, op: str, *args: int, attr: tuple = ()) -> int:
        """An elementwise op; its lanes are those of its widest argument."""
        return self.add(Value(op, args, max(self.values[a].lanes for a in args), attr))

    def sum(self, arg: int) -> int:
        return self.add(Value("sum", (arg,), 1))

    def input(self, name: str) -> Input:
        return next(i for i in self.inputs if i.name == name)

    # ---- reading
    def lanes_of_load(self, v: int) -> tuple[str, Lanes]:
        name, *lanes = self.values[v].attr
        return name, Lanes(*lanes)

    def needed(self, roots: list[int] | None = None) -> list[int]:
        """Values that the roots (default: everything that leaves) depend on, in an order that can be computed."""
        stack = [p.value for o in (*self.outputs, *self.vectors) for p in o.pieces] if roots is None else list(roots)
        seen: set[int] = set()
        while stack:
            v = stack.pop()
            if v not in seen:
                seen.add(v)
                stack.extend(self.values[v].args)
        return sorted(seen)

    def depth(self) -> dict[int, int]:
        """How many row reductions stand before each value: the loop it belongs to when a row is too wide for one."""
        found: dict[int, int] = {}
        for v, value in enumerate(self.values):
            found[v] = max((found[a] + (self.values[a].op == "sum") for a in value.args), default=0)
        return found

    @property
    def reduces(self) -> bool:
        return any(self.values[v].op in REDUCTIONS for v in self.needed())

    @property
    def is_pointwise(self) -> bool:
        """No lane reads another: rows may be cut anywhere."""
        return not self.reduces and all(
            self.values[v].op != "load" or self.lanes_of_load(v)[1] == Lanes(0, 1, self.width) for v in self.needed()
        ) and all(p.lanes == Lanes(0, 1, self.width) for o in self.outputs for p in o.pieces)

    def text(self) -> str:
        """Canonical text: equal for equal functions, whatever the layer, nodes or names of modules."""
        order = self.needed()
        number = {v: i for i, v in enumerate(order)}
        lines = [f"part {self.width} {'heads' if self.per_head else ''}"]
        lines += [f"in {i.name} {i.role} {i.width} {i.per_head} {i.dtype}" for i in self.inputs]
        for v in order:
            value = self.values[v]
            lines.append(f"%{number[v]} = {value.op}{list(value.attr) or ''} {' '.join(f'%{number[a]}' for a in value.args)} : {value.lanes}")
        for o in self.outputs:
            lines.append(f"out {o.name} {o.dtype} {o.width} " + " ".join(f"{tuple(p.lanes)}=%{number[p.value]}" for p in o.pieces))
        for o in self.vectors:
            lines.append(f"vector {o.name} {o.width} " + " ".join(f"{tuple(p.lanes)}=%{number[p.value]}" for p in o.pieces))
        if self.carried in number:
            lines.append(f"carried %{number[self.carried]}")
        if self.carries in number:
            lines.append(f"carries %{number[self.carries]}")
        return "\n".join(lines)


REDUCTIONS = frozenset({"sum", "amax", "amin"})


@dataclass
class RegionIR:
    """One region: parts that one launch computes (queries and keys), and where in the engine it comes from."""

    kind: str
    parts: list[Part]
    name: str = ""
    kernels: tuple[tuple[str, str], ...] = ()
    """(generated file, kernel) of the engine it mirrors."""
    modules: tuple[str, ...] = ()
    nodes: frozenset[int] = frozenset()
    """Nodes of the engine's program inside, the rounds that leave included."""

    @property
    def fingerprint(self) -> str:
        text = f"{self.kind} {self.name}\n" + "\n".join(p.text() for p in self.parts)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Refused:
    """A rounded value for which no kernel is made, and why."""

    node: int
    module: str
    kernel: str
    reason: str
