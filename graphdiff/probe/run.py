"""The probe: evaluate the skeleton, sketch every value and every read, and note the state each read is in."""

from __future__ import annotations

import numpy as np

from graphdiff.probe.dequantise import Skeleton
from graphdiff.probe.liveness import live_elements, operand_live
from graphdiff.probe.sketch import SketchTable
from graphdiff.probe.states import States
from graphdiff.probe.types import ProbeData
from graphdiff.program import Evaluation, Operand, Options, Program
from graphdiff.program.dtypes import decode

BIG_STATIC = 1 << 18
"""Static operands above this size (weights) are told apart by what they do, not by their own sketch."""


def probe(program: Program, bits: dict[int, np.ndarray], *, static_rule: bool, pin_anchors: bool,
          substitutes: dict[int, np.ndarray] | None = None, rounded_leaves: dict[int, str] | None = None) -> ProbeData:
    """Probe a program whose leaf bits are all at hand.

    static_rule: see dequantise.py (model captures). pin_anchors: keep anchors' numbers (float32 of the skeleton's) so
    that regions can be evaluated later without weights. substitutes / rounded_leaves: leaves that are the rounding of
    a value the other side forms (compare/leaves.py).
    """
    with np.errstate(all="ignore"):  # overflow and NaN are results here
        return _Probe(program, bits, static_rule, pin_anchors, substitutes, rounded_leaves).run()


class _Probe:
    def __init__(self, program, bits, static_rule, pin_anchors, substitutes, rounded_leaves) -> None:
        self.program = program
        self.skeleton = Skeleton(program, bits, static_rule=static_rule, substitutes=substitutes)
        self.live = live_elements(program)
        dynamic = [n for n, node in enumerate(program.nodes) if node.dynamic and self._alive(n)]
        self.skeleton.run(dynamic)
        self.pins = {n: self._pin(n, bits) for n in dynamic
                     if program.nodes[n].kind in ("anchor", "opaque") or self._is_spelled_matmul(n)} if pin_anchors else {}
        self.schedule = Evaluation(program, bits, Options(pins=self.pins))
        self.states = States(program, self.schedule, self.skeleton, self.live, rounded_leaves)
        self.sketches = SketchTable()
        self.rows: list[tuple[int, int, int, int, int, int, int]] = []
        self._known: dict[tuple, int] = {}

    def _pin(self, n: int, bits: dict[int, np.ndarray]) -> np.ndarray:
        """Anchors keep the skeleton's numbers, which both sides share; embeddings the table's own, which are low-precision
        numbers that no rounding changes."""
        if self.program.nodes[n].op == "embedding" and self.skeleton.static_rule:
            operand = self.program.nodes[n].operands[0]
            if len(operand.nodes) == 1 and self.program.nodes[operand.nodes[0]].op == "leaf":
                leaf = operand.nodes[0]
                return decode(self.program.take(operand, bits.__getitem__), self.program.nodes[leaf].dtype).astype(np.float32).reshape(-1)
        return self.skeleton.flat(n).astype(np.float32)

    def _is_spelled_matmul(self, n: int) -> bool:
        """A sum of products with a weight (one-token kernels): an anchor in all but name."""
        node = self.program.nodes[n]
        if node.op != "sum" or len(node.operands[0].nodes) != 1:
            return False
        factor = self.program.nodes[node.operands[0].nodes[0]]
        return factor.op == "mul" and any(
            not self.program.nodes[m].dynamic and self.program.nodes[m].op == "leaf" and len(self.program.nodes[m].shape) > 1
            for o in factor.operands for m in o.nodes)

    def _alive(self, n: int) -> bool:
        return self.live[n] is None or bool(self.live[n].any())

    def run(self) -> ProbeData:
        nodes = self.program.nodes
        value_sketch = np.full(len(nodes), -1, np.int32)
        value_state = np.full(len(nodes), -1, np.int32)
        live = np.zeros(len(nodes), np.int64)
        for n, node in enumerate(nodes):
            if not self._alive(n):
                continue
            live[n] = node.size if self.live[n] is None else int(self.live[n].sum())
            state = self.states.of[n]
            value_state[n] = state if isinstance(state, int) else -1
            if node.dynamic:
                value_sketch[n] = self._value(n)
            if node.dynamic and node.kind in ("arith", "anchor", "opaque") and self.states.exact[n] < 0:
                for slot, operand in enumerate(node.operands):
                    self._read(n, slot, operand, operand_live(node, operand, self.live[n]))
        for i, output in enumerate(self.program.outputs):
            self._read(-1 - i, 0, output.operand, None)
        hashes, offsets, thresholds = self.sketches.arrays()
        return ProbeData(hashes, offsets, thresholds, value_sketch, value_state,
                         np.array(self.states.exact, np.int8), live, _columns(self.rows), self.states.table.states, self.pins)

    def _value(self, n: int) -> int:
        node = self.program.nodes[n]
        if self.live[n] is None and node.op == "round" and node.operands[0].form == "whole":
            source = node.operands[0].nodes[0]
            if self.live[source] is None and (source,) in self._known:
                self._known[(n,)] = self._known[(source,)]
                return self._known[(n,)]
        values = self.skeleton.flat(n)
        self._known[(n,)] = self.sketches.add(values if self.live[n] is None else values[self.live[n].reshape(-1)])
        return self._known[(n,)]

    def _read(self, consumer: int, slot: int, operand: Operand, live: np.ndarray | None) -> None:
        """One row per state among the live elements read."""
        static = all(not self.program.nodes[m].dynamic for m in operand.nodes)
        size = int(np.prod(operand.shape))
        if size == 0:
            return
        state = self.states.read(operand)
        if static and size > BIG_STATIC:
            self.rows.append((consumer, slot, -1, state if isinstance(state, int) else -1, size, size, 1))
            return
        if isinstance(state, int) and live is None:
            self.rows.append((consumer, slot, self._operand_sketch(consumer, slot, operand), state, size, size, int(static)))
            return
        values = self.skeleton.read(operand, (consumer, slot))
        mask = np.ones(operand.shape, bool) if live is None else live
        total = int(mask.sum())
        for s in [state] if isinstance(state, int) else np.unique(state[mask]).tolist():
            part = mask if isinstance(state, int) else mask & (state == s)
            self.rows.append((consumer, slot, self.sketches.add(values[part]), s, int(part.sum()), total, int(static)))

    def _operand_sketch(self, consumer: int, slot: int, operand: Operand) -> int:
        probed = consumer >= 0
        key = (operand, probed) if operand.form != "whole" or not self.program.nodes[operand.nodes[0]].dynamic else (operand.nodes[0],)
        if key not in self._known:
            self._known[key] = self.sketches.add(self.skeleton.read(operand, (consumer, slot)))
        return self._known[key]


def _columns(rows: list[tuple]) -> dict[str, np.ndarray]:
    names = (("consumer", np.int32), ("slot", np.int32), ("sketch", np.int32), ("state", np.int32), ("count", np.int64),
             ("total", np.int64), ("static", np.int8))
    table = np.array(rows, np.int64).reshape(-1, len(names))
    return {name: table[:, i].astype(dtype) for i, (name, dtype) in enumerate(names)}
