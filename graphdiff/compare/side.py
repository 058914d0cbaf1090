"""One side of a comparison: its program, what the probe knows of it, and its values as a graph of reads."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

import numpy as np

from graphdiff.probe.types import ProbeData
from graphdiff.program import Operand, Program

MODE_SEPARATOR = ":"


class Side:
    """rows: the probe's reads, by number. A row is one operand of one consumer in one rounding state.

    A base is a node that forms a value (arith, anchor, opaque, leaf); rounds and exact ops are looked through.
    """

    def __init__(self, program: Program, data: ProbeData, bits: dict[int, np.ndarray]) -> None:
        self.program, self.data, self.bits = program, data, bits
        self.substitutes: dict[int, np.ndarray] = {}
        """Skeleton numbers of leaves that are the rounding of something the other side computes."""
        self.consumer = data.reads["consumer"].tolist()
        self.slot = data.reads["slot"].tolist()
        self.sketch = data.reads["sketch"].tolist()
        self.state = data.reads["state"].tolist()
        self.static = data.reads["static"].astype(bool).tolist()
        self.count = data.reads["count"].tolist()
        self.total = data.reads["total"].tolist()
        self.rows_of: dict[int, list[int]] = defaultdict(list)
        for i, c in enumerate(self.consumer):
            self.rows_of[c].append(i)
        self._bases: dict[int, tuple[int, ...]] = {}

    # ---- sketches
    def hashes(self, sketch: int) -> np.ndarray:
        return self.data.hashes[self.data.offsets[sketch]:self.data.offsets[sketch + 1]]

    @property
    def sketches(self) -> int:
        return len(self.data.thresholds)

    def value(self, node: int) -> int:
        """Sketch number of a node's value; -1 if it has none. An output (-1 - i) has the sketch of what it reads."""
        if node >= 0:
            return int(self.data.value_sketch[node])
        rows = self.rows_of.get(node, ())
        return self.sketch[rows[0]] if rows else -1

    @cached_property
    def only_static(self) -> np.ndarray:
        """bool per sketch: nothing that depends on a token has it (weights, tables)."""
        result = np.zeros(self.sketches, bool)
        rows = np.array(self.sketch, np.int64)
        static = np.array(self.static, bool)
        result[rows[static & (rows >= 0)]] = True
        result[rows[~static & (rows >= 0)]] = False
        values = self.data.value_sketch
        result[values[values >= 0]] = False
        return result

    @cached_property
    def joined(self) -> tuple[np.ndarray, np.ndarray]:
        """All hashes but those of weights, sorted, and the sketch each belongs to."""
        owner = np.repeat(np.arange(self.sketches), np.diff(self.data.offsets))
        keep = np.flatnonzero(~self.only_static[owner])
        keep = keep[np.argsort(self.data.hashes[keep])]
        return self.data.hashes[keep], owner[keep]

    # ---- states
    def events(self, row: int) -> tuple[str, ...]:
        """Roundings the elements of a row have been through, oldest first."""
        return self.data.states[self.state[row]][1] if self.state[row] >= 0 else ()

    def formats(self, row: int) -> tuple[str, ...]:
        return self.data.states[self.state[row]][0] if self.state[row] >= 0 else ()

    # ---- the graph of values
    def is_exact(self, node: int) -> bool:
        """Looked through: a rounding before it is a rounding after it."""
        return self.program.nodes[node].kind in ("exact", "round") or self.data.exact_slot[node] >= 0

    def looked_through(self, node: int) -> tuple[Operand, ...]:
        """The operands that an exact node's elements are taken from."""
        slot = int(self.data.exact_slot[node])
        operands = self.program.nodes[node].operands
        return operands if slot < 0 else (operands[slot],)

    def changes_bits(self, node: int) -> bool | None:
        """Whether a round node is a rounding: False where the format holds all of its elements already (a sign turned, a
        copy), None where it holds some of them."""
        state = int(self.data.value_state[node])
        if state < 0:
            return None
        before = [int(self.data.value_state[m]) for o in self.program.nodes[node].operands for m in o.nodes]
        return not any(s >= 0 and self.data.states[s][1] == self.data.states[state][1] for s in before)

    def operand(self, row: int):
        c = self.consumer[row]
        return self.program.outputs[-1 - c].operand if c < 0 else self.program.nodes[c].operands[self.slot[row]]

    def bases_of_node(self, node: int) -> tuple[int, ...]:
        """Bases whose values a node's elements are, seen through rounds and exact ops."""
        if node not in self._bases:
            if not self.is_exact(node):
                self._bases[node] = (node,)
            else:
                found = {b for o in self.looked_through(node) for m in o.nodes for b in self.bases_of_node(m)}
                values = {b for b in found if self.program.nodes[b].op != "const"}
                self._bases[node] = tuple(sorted(values or found))
        return self._bases[node]

    def bases(self, row: int) -> tuple[int, ...]:
        found = {b for m in self.operand(row).nodes for b in self.bases_of_node(m)}
        values = {b for b in found if self.program.nodes[b].op != "const"}
        return tuple(sorted(values or found))

    @cached_property
    def readers(self) -> dict[int, list[int]]:
        """base -> rows that read it."""
        found: dict[int, list[int]] = defaultdict(list)
        for row in range(len(self.consumer)):
            for b in self.bases(row):
                found[b].append(row)
        return found

    @cached_property
    def products(self) -> dict[int, int]:
        """sum node -> the mul it alone reads: a matrix product spelled out (one-token kernels), read as one consumer."""
        found = {}
        for node in self.consumers:
            if self.program.nodes[node].op != "sum":
                continue
            bases = {b for row in self.rows_of[node] for b in self.bases(row)}
            if len(bases) == 1 and self.program.nodes[factor := bases.pop()].op == "mul" and not self.is_exact(factor) \
                    and {self.consumer[r] for r in self.readers[factor]} == {node}:
                found[node] = factor
        return found

    @cached_property
    def partial_sums(self) -> set[int]:
        """Sums that only sums read, unrounded: a reduction that is split over kernels forms them, and is one value."""
        found = set()
        for node in self.consumers:
            if self.program.nodes[node].op == "sum" and (rows := self.readers.get(node)):
                if all(self.consumer[r] >= 0 and self.program.nodes[self.consumer[r]].op == "sum" and not self.events(r) for r in rows):
                    found.add(node)
        return found

    @cached_property
    def unrolled(self) -> dict[int, tuple[int, ...]]:
        """Last add -> all adds of a sum of three terms or more that is written out: each but the last is read by the next
        alone, unrounded. Inductor unrolls short reductions (`unroll_reductions_threshold`)."""
        found: dict[int, tuple[int, ...]] = {}
        inside: set[int] = set()
        for node in reversed([c for c in self.consumers if self.program.nodes[c].op == "add"]):
            if node in inside:
                continue
            adds, todo = [], [node]
            while todo:
                adds.append(n := todo.pop())
                todo += [b for row in self.rows_of[n] if not self.events(row) for b in self.bases(row)
                         if self.program.nodes[b].op == "add" and {self.consumer[r] for r in self.readers[b]} == {n}]
            if len(adds) > 1:
                found[node] = tuple(adds)
                inside.update(adds)
        return found

    @cached_property
    def total_of(self) -> dict[int, int]:
        """Add within unrolled() -> the last one."""
        return {add: last for last, adds in self.unrolled.items() for add in adds if add != last}

    @cached_property
    def sum_of(self) -> dict[int, int]:
        """mul -> the sum of products() it belongs to."""
        return {factor: node for node, factor in self.products.items()}

    @cached_property
    def rounded_bases(self) -> set[int]:
        """Bases of which a live rounded copy is made."""
        return {b for n, node in enumerate(self.program.nodes) if node.op == "round" and self.data.live[n]
                for o in node.operands for m in o.nodes for b in self.bases_of_node(m)}

    @cached_property
    def consumers(self) -> list[int]:
        """Nodes that consume, in order (outputs not among them)."""
        return [c for c in self.rows_of if c >= 0]


def base_format(event: str) -> str:
    """`bfloat16:rz` -> `bfloat16`."""
    return event.split(MODE_SEPARATOR)[0]
