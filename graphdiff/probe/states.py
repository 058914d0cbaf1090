"""The rounding state of every element: which formats can represent it, and which roundings it has been through.

A rounding is an event only if what it rounds is not representable already, by format or by the numbers of the probe.
Selections and exact ops hand the state on; arithmetic starts afresh.
"""

from __future__ import annotations

import numpy as np

from graphdiff.program import Evaluation, Operand, Program
from graphdiff.program.dtypes import FORMATS, LOW, contains, round_to
from graphdiff.program.evaluate import CHUNK, exact_slot
from graphdiff.program.ops import EXACT_BINARY

State = tuple[tuple[str, ...], tuple[str, ...]]
FRESH: State = ((), ())


def formats_of(dtype: str) -> tuple[str, ...]:
    """Low formats that hold every value of `dtype`."""
    return tuple(f for f in sorted(LOW) if contains(f, dtype))


def formats_by_numbers(values: np.ndarray) -> tuple[str, ...]:
    """Low formats that hold these very numbers."""
    return tuple(f for f in sorted(LOW) if np.array_equal(round_to(values, f), values, equal_nan=True))


def label(dtype: str, mode: str) -> str:
    """An event's name: the format, and the mode where it is not round to nearest even (`bfloat16:rz`)."""
    return dtype if mode == "rne" else f"{dtype}:{mode}"


class StateTable:
    """States by number."""

    def __init__(self) -> None:
        self.states: list[State] = []
        self._known: dict[State, int] = {}
        self.fresh = self.add(FRESH)

    def add(self, state: State) -> int:
        if state not in self._known:
            self._known[state] = len(self.states)
            self.states.append(state)
        return self._known[state]


class States:
    """State of each node: an int where all elements agree, else an int array of the node's flat elements.

    `schedule` is the side's float32 evaluation, asked only whether a rounding changed anything.
    """

    def __init__(self, program: Program, schedule: Evaluation, skeleton: Evaluation, live: list[np.ndarray | None],
                 rounded_leaves: dict[int, str] | None = None) -> None:
        self.program, self.schedule, self.skeleton, self.live = program, schedule, skeleton, live
        self.rounded_leaves = rounded_leaves or {}
        self.table = StateTable()
        self.of: list[int | np.ndarray] = []
        self.exact: list[int] = []
        for n in range(len(program.nodes)):
            self.exact.append(-1)
            self.of.append(self._node(n))

    def read(self, operand: Operand) -> int | np.ndarray:
        """State(s) of what an operand reads (array of its shape where they differ)."""
        states = [self.of[n] for n in operand.nodes]
        if all(isinstance(s, int) for s in states) and len(set(states)) <= 1:
            return states[0] if states else self.table.fresh
        found = self.program.take(operand, lambda n: np.full(self.program.nodes[n].size, self.of[n], np.int32)
                                  if isinstance(self.of[n], int) else self.of[n])
        return _collapse(found)

    def _node(self, n: int) -> int | np.ndarray:
        node = self.program.nodes[n]
        if node.kind == "leaf":
            return self._leaf(n)
        dead = self.live[n] is not None and not self.live[n].any()
        if dead or node.kind == "opaque":
            return self.table.fresh
        if node.op == "round":
            return self._rounded(n)
        if node.op == "embedding" or node.kind == "exact" and node.op not in EXACT_BINARY and "axes" not in node.attrs:
            return _flat(self.read(node.operands[0]))
        if node.op in EXACT_BINARY:
            return self._picked(n)
        if node.kind == "exact":
            return self._extreme(n)
        slot = exact_slot(self.schedule, n)
        if slot is not None:
            self.exact[n] = slot
            s = self.read(node.operands[slot])
            return s if isinstance(s, int) else np.broadcast_to(s, node.shape).reshape(-1)
        if not node.dynamic and node.size <= 1 << 20:
            return self.table.add((formats_by_numbers(self.schedule.flat(n)), ()))
        return self.table.fresh

    def _leaf(self, n: int) -> int:
        node = self.program.nodes[n]
        if n in self.rounded_leaves:
            return self.table.add((formats_of(self.rounded_leaves[n]), (self.rounded_leaves[n],)))
        if node.op == "leaf" and (node.dtype in LOW or node.size > CHUNK or n not in self.schedule.bits):
            return self.table.add((formats_of(node.dtype) if node.dtype in FORMATS else (), ()))
        return self.table.add((formats_by_numbers(self.schedule.flat(n)), ()))

    def _rounded(self, n: int) -> int | np.ndarray:
        node = self.program.nodes[n]
        before = self.read(node.operands[0])
        name = label(node.dtype, node.attrs.get("mode", "rne"))
        new: dict[int, int] = {}
        for s in [before] if isinstance(before, int) else np.unique(before).tolist():
            formats, events = self.table.states[s]
            if node.dtype in formats:
                new[s] = s
            elif self._changes_nothing(n, before, s):
                new[s] = self.table.add((formats_of(node.dtype), events))
            else:
                new[s] = self.table.add((formats_of(node.dtype), (*events, name)))
        if isinstance(before, int):
            return new[before]
        lookup = np.zeros(max(new) + 1, np.int32)
        for s, t in new.items():
            lookup[s] = t
        return _flat(_collapse(lookup[before]))

    def _changes_nothing(self, n: int, before: int | np.ndarray, s: int) -> bool:
        node = self.program.nodes[n]
        if node.size > CHUNK:
            return False
        x = self.schedule.read(node.operands[0], (n, 0)).reshape(-1)
        y = self.schedule.flat(n)
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        counted = np.ones(node.size, bool) if self.live[n] is None else self.live[n].reshape(-1).copy()
        if not isinstance(before, int):
            counted &= before.reshape(-1) == s
        return bool(same[counted].all())

    def _picked(self, n: int) -> int | np.ndarray:
        """maximum, minimum: each element has the state of the operand it was taken from."""
        node = self.program.nodes[n]
        states = [self.read(o) for o in node.operands]
        if all(isinstance(s, int) for s in states) and states[0] == states[1] or node.op == "copysign":
            s = states[0]
            return s if isinstance(s, int) else np.broadcast_to(s, node.shape).reshape(-1)
        a = self.skeleton.read(node.operands[0], (n, 0))
        first = np.broadcast_to(self.skeleton.node(n) == a, node.shape)
        return _flat(_collapse(np.where(first, states[0], states[1]).astype(np.int32)))

    def _extreme(self, n: int) -> int | np.ndarray:
        """amax, amin: the state of the element that was taken."""
        node = self.program.nodes[n]
        s = self.read(node.operands[0])
        if isinstance(s, int):
            return s
        axes = tuple(node.attrs["axes"])
        x = self.skeleton.read(node.operands[0], (n, 0))
        kept = [a for a in range(x.ndim) if a not in axes]
        order = (*kept, *axes)
        rows = x.transpose(order).reshape(int(np.prod([x.shape[a] for a in kept])), -1)
        best = (rows.argmax if node.op == "amax" else rows.argmin)(axis=1)
        return _collapse(s.transpose(order).reshape(rows.shape)[np.arange(rows.shape[0]), best])


def _collapse(s: np.ndarray) -> int | np.ndarray:
    if s.size == 0:
        return 0
    first = int(s.flat[0])
    return first if (s == first).all() else s


def _flat(s: int | np.ndarray) -> int | np.ndarray:
    return s if isinstance(s, int) else s.reshape(-1)
