"""Evaluating a program with numpy: one class, three ways.

  schedule   float32 arithmetic, roundings as they stand (optionally changed by read): what the side computes.
  exact      float64 arithmetic with the same roundings: the schedule without float32 noise.
  skeleton   float64, no rounding: the values themselves (see probe/, which dequantises leaves for it).

Nodes in `pins` take given numbers instead of being computed (anchors whose weights a capture does not hold).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from graphdiff.errors import GraphdiffError
from graphdiff.program import ops
from graphdiff.program.dtypes import decode, decode_table, round_to
from graphdiff.program.types import Operand, Program

CHUNK = 1 << 22


@dataclass(frozen=True)
class Change:
    """What a schedule override does to one read: take the value before these roundings, or round it as well.

    unround: formats whose roundings are undone on the way to the reader. round: (format, mode) applied, or None, to the
    numbers times `scale` (a power of two: the other side may round the scaled value).
    mask: bool array of the operand's shape; None means all elements.
    """

    unround: frozenset[str] = frozenset()
    round: tuple[str, str] | None = None
    scale: float = 1.0
    mask: np.ndarray | None = None


Read = tuple[int, int]
"""(consumer node, operand slot); consumer -1 - i is output i."""


@dataclass
class Options:
    """See the module's text. `leaf` overrides how a leaf's numbers are made (bits, format) -> flat numbers."""

    precision: type = np.float32
    rounding: bool = True
    pins: dict[int, np.ndarray] = field(default_factory=dict)
    changes: dict[Read, list[Change]] = field(default_factory=dict)
    arithmetic: ops.Arithmetic = field(default_factory=ops.Arithmetic)


class Evaluation:
    """Numbers of a program's nodes, computed once each, on demand."""

    def __init__(self, program: Program, bits: dict[int, np.ndarray], options: Options | None = None) -> None:
        self.program, self.bits, self.options = program, bits, options or Options()
        self.values: dict[int, np.ndarray] = {}
        self._unrounded: dict[tuple[int, frozenset[str]], np.ndarray] = {}

    # ---- the face
    def flat(self, node: int) -> np.ndarray:
        """The node's elements, 1-d, computing whatever it needs."""
        if node not in self.values:
            for n in self._needed([node]):
                self.values[n] = self._compute(n)
        # Big leaves are decoded again for each reader rather than held.
        return self.values[node] if node in self.values else self._compute(node)

    def node(self, node: int) -> np.ndarray:
        return self.flat(node).reshape(self.program.nodes[node].shape)

    def read(self, operand: Operand, reader: Read | None = None) -> np.ndarray:
        """What an operand reads, under the changes for `reader` if any."""
        plain = self.program.take(operand, self.flat)
        for change in self.options.changes.get(reader, ()) if reader is not None else ():
            plain = self._changed(operand, plain, change)
        return plain

    def output(self, i: int) -> np.ndarray:
        return self.read(self.program.outputs[i].operand, (-1 - i, 0))

    def run(self, nodes: Iterable[int]) -> None:
        for n in self._needed(nodes):
            self.values[n] = self._compute(n)

    # ---- one node
    def _needed(self, nodes: Iterable[int]) -> list[int]:
        stack, seen = [n for n in nodes if n not in self.values], set()
        while stack:
            n = stack.pop()
            if n in seen or n in self.values:
                continue
            seen.add(n)
            if n not in self.options.pins:
                stack.extend(m for o in self.program.nodes[n].operands for m in o.nodes)
        # A big weight is read in chunks by mm and never held as numbers.
        return [n for n in sorted(seen) if not self._is_big_leaf(n)]

    def _is_big_leaf(self, n: int) -> bool:
        node = self.program.nodes[n]
        return node.op == "leaf" and node.size > CHUNK

    def _compute(self, n: int) -> np.ndarray:
        node = self.program.nodes[n]
        if n in self.options.pins:
            pinned = self.options.pins[n].reshape(-1)
            return pinned.astype(self.options.precision, copy=False)
        if node.op == "const":
            with np.errstate(over="ignore"):
                return np.full(1, node.attrs["value"], np.float64).astype(self.options.precision)
        if node.op == "leaf" or n in self.bits:
            return self.leaf(n)
        if node.op == "round":
            x = self.operand(n, 0)
            return self.rounded(x, node.dtype, node.attrs.get("mode", "rne")).reshape(-1)
        if node.op == "mm" and len(node.operands[1].nodes) == 1 and self._is_big_leaf(node.operands[1].nodes[0]):
            return self._mm_in_chunks(n).reshape(-1)
        if node.op == "opaque":
            raise GraphdiffError(f"{node.attrs.get('name', 'an opaque op')} cannot be evaluated",
                                 where=f"node {n}", fix="its schedule is not known; see docs/rules")
        ins = [self.operand(n, i) for i in range(len(node.operands))]
        return np.broadcast_to(ops.apply(node.op, node.attrs, ins, self.options.arithmetic), node.shape).reshape(-1)

    def operand(self, n: int, slot: int) -> np.ndarray:
        """Numbers operand `slot` of node n reads (subclasses change what some readers see)."""
        return self.read(self.program.nodes[n].operands[slot], (n, slot))

    def rounded(self, x: np.ndarray, dtype: str, mode: str) -> np.ndarray:
        if self.options.rounding and mode == "stochastic":
            raise GraphdiffError("stochastic rounding has no single answer", fix="capture with rounding to nearest even")
        return round_to(x, dtype, mode) if self.options.rounding else x

    def leaf(self, n: int) -> np.ndarray:
        """A leaf's numbers. Raises GraphdiffError if the capture does not hold them."""
        node = self.program.nodes[n]
        raw = self._raw(n)
        # Outputs of opaque ops and of stochastic rounding are kept as float32 numbers beside the leaves.
        numbers = decode(raw, node.dtype) if node.op == "leaf" else raw
        return numbers.astype(self.options.precision, copy=False)

    def _raw(self, n: int) -> np.ndarray:
        if n not in self.bits:
            name = self.program.nodes[n].attrs.get("name", f"leaf {n}")
            raise GraphdiffError(f"the capture does not hold the numbers of {name}", fix="capture again with --keep-weights")
        return self.bits[n]

    def leaf_chunk(self, raw: np.ndarray, dtype: str) -> np.ndarray:
        """float64 numbers of some bits of a big leaf."""
        return raw.astype(np.float64) if dtype in ("float32", "float64") else decode_table(dtype)[raw]

    def _mm_in_chunks(self, n: int) -> np.ndarray:
        """[..., M, K] @ [..., K, N] with a big leaf on the right (any strides), upcast a slice of N at a time."""
        node = self.program.nodes[n]
        a = self.operand(n, 0).astype(np.float64, copy=False)
        right = node.operands[1]
        (leaf,) = right.nodes
        raw = self.program.take(right, lambda m: self._raw(m))
        columns = raw.shape[-1]
        step = max(1, CHUNK // max(1, raw.shape[-2]))
        dtype = self.program.nodes[leaf].dtype
        out = np.empty((*np.broadcast_shapes(a.shape[:-2], raw.shape[:-2]), a.shape[-2], columns), np.float64)
        for start in range(0, columns, step):
            piece = np.ascontiguousarray(raw[..., start:start + step].swapaxes(-1, -2))
            out[..., start:start + step] = np.matmul(a, self.leaf_chunk(piece, dtype).swapaxes(-1, -2))
        return out.astype(self.options.precision, copy=False)

    # ---- changes
    def _changed(self, operand: Operand, plain: np.ndarray, change: Change) -> np.ndarray:
        new = plain
        if change.unround:
            new = self.program.take(operand, lambda m: self.unrounded(m, change.unround))
        if change.round:
            scale = new.dtype.type(change.scale)
            new = (round_to(np.ascontiguousarray(new) * scale, *change.round) / scale).reshape(new.shape)  # contiguous is 1-d at least
        return new if change.mask is None else np.where(change.mask, new, plain)

    def unrounded(self, n: int, formats: frozenset[str]) -> np.ndarray:
        """Node n's numbers (flat) as they were before roundings to `formats`, looked for through exact ops."""
        key = (n, formats)
        if key not in self._unrounded:
            self._unrounded[key] = self._before_rounding(n, formats)
        return self._unrounded[key]

    def _before_rounding(self, n: int, formats: frozenset[str]) -> np.ndarray:
        node = self.program.nodes[n]
        if n in self.options.pins or node.kind not in ("round", "exact") and not self.passes_through(n):
            return self.flat(n)
        ins = [self.program.take(o, lambda m: self.unrounded(m, formats)) for o in node.operands]
        if node.op == "round":
            same = ins[0] if node.dtype in formats else self.rounded(ins[0], node.dtype, node.attrs.get("mode", "rne"))
            return same.reshape(-1)
        out = ops.apply(node.op, node.attrs, ins, self.options.arithmetic)
        return np.broadcast_to(out, node.shape).reshape(-1)

    def passes_through(self, n: int) -> bool:
        """True for arithmetic that is exact because of its numbers (power-of-two scale, + 0 / -inf)."""
        return exact_slot(self, n) is not None


def exact_slot(evaluation: Evaluation, n: int) -> int | None:
    """For mul, div, add, sub with a concrete static operand that cannot make a rounding matter: the other slot.

    mul and div by 0 or a power of two, add and sub of 0 or an infinity.
    """
    node = evaluation.program.nodes[n]
    if node.op not in ("mul", "div", "add", "sub") or len(node.operands) != 2:
        return None
    for other in (1,) if node.op in ("div", "sub") else (1, 0):
        concrete = _concrete(evaluation, node.operands[other])
        if concrete is not None and _HARMLESS[node.op](concrete):
            return 1 - other
    return None


def _concrete(evaluation: Evaluation, operand: Operand) -> np.ndarray | None:
    program = evaluation.program
    size = 0
    for n in operand.nodes:
        node = program.nodes[n]
        if node.op == "const":
            size += 1
            continue
        if node.op != "leaf" or n not in evaluation.bits or node.size > CHUNK:
            return None
        size += node.size
    if not size:
        return None
    parts = {n: (np.full(1, program.nodes[n].attrs["value"]) if program.nodes[n].op == "const"
                 else decode(evaluation.bits[n], program.nodes[n].dtype)) for n in operand.nodes}
    return program.take(operand, parts.__getitem__)


def _is_power_of_two(x: np.ndarray) -> bool:
    mantissa, _ = np.frexp(np.abs(x[np.isfinite(x)]))
    return bool(np.isfinite(x).all() and ((mantissa == 0.5) | (mantissa == 0)).all())


_HARMLESS: dict[str, Callable[[np.ndarray], bool]] = {
    "mul": _is_power_of_two,
    "div": lambda x: _is_power_of_two(x) and bool((x != 0).all()),
    "add": lambda x: bool(((x == 0) | np.isinf(x)).all()),
    "sub": lambda x: bool(((x == 0) | np.isinf(x)).all()),
}
