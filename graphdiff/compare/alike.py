"""Values that the other side forms in the same place with other numbers: the same ops on the same values, but for a constant.

With another `eps` everything behind it holds other numbers, and no value there is found on the other side. A rounding that
stands there on both sides is not moved for that. Nothing of the kind is said where a value behind the place is found on
the other side after all: `x * 1.1 * 1.3` and `x * 1.3 * 1.1` do round other values on the way to one.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property
from typing import Any

from graphdiff.program.ops import COMMUTATIVE

DEEPEST = 100
"""Ops in a row that are compared at once; deeper ones are known from the values before them."""


class Alike:
    """Reads of one side with their counterparts on the other, asked by row. `pairing`: a compare.moved.Pairing."""

    def __init__(self, pairing: Any) -> None:
        self.pairing, self.own, self.other = pairing, pairing.own, pairing.other
        self._known: dict[tuple[int, int], bool] = {}

    def rows(self, row: int) -> list[int]:
        """The other side's rows that read in the same place, the same slot of the same consumer, but for constants."""
        consumer, slot = self.own.consumer[row], self.own.slot[row]
        if consumer < 0 or self._is_found(consumer) or self._reach_found[consumer] or len(self.own.bases(row)) != 1:
            return []
        found = []
        for c in self._unfound_there[self._kind(self.own, consumer)]:
            order = next((o for o in self._orders(consumer, c) if self._agree(consumer, c, o, 0)), None)
            if order is not None:
                found += [r for r in self.other.rows_of[c] if self.other.slot[r] == order[slot]]
        return found

    # ---- what one side forms and the other does not
    def _is_found(self, node: int) -> bool:
        return bool(self.own.value(node) >= 0 and self.pairing.partners(self.own.value(node)))

    @cached_property
    def _reach_found(self) -> list[bool]:
        """Per own node: something computed from it is formed by the other side too."""
        nodes = self.own.program.nodes
        reach = [False] * len(nodes)
        for i, output in enumerate(self.own.program.outputs):
            for m in output.operand.nodes if self._is_found(-1 - i) else ():
                reach[m] = True
        formed = {c for c in self.own.consumers if self._is_found(c)}
        for n in range(len(nodes) - 1, -1, -1):
            if reach[n] or n in formed:
                for o in nodes[n].operands:
                    for m in o.nodes:
                        reach[m] = True
        return reach

    @cached_property
    def _unfound_there(self) -> dict[tuple, list[int]]:
        """The other side's consumers whose value this side does not form, by kind."""
        found: dict[tuple, list[int]] = defaultdict(list)
        for c in self.other.consumers:
            if self.other.value(c) >= 0 and not self.pairing.partners_here(self.other.value(c)):
                found[self._kind(self.other, c)].append(c)
        return found

    @staticmethod
    def _kind(side: Any, node: int) -> tuple:
        n = side.program.nodes[node]
        return n.op, n.size, len(n.operands), repr(sorted(n.attrs.items()))

    # ---- the same ops
    def _orders(self, mine: int, theirs: int) -> list[tuple[int, ...]]:
        """Which of their operands each of mine may be."""
        node = self.own.program.nodes[mine]
        straight = tuple(range(len(node.operands)))
        return [straight, (1, 0)] if node.op in COMMUTATIVE and len(straight) == 2 else [straight]

    def _agree(self, mine: int, theirs: int, order: tuple[int, ...], depth: int) -> bool:
        return all(self._same_operand((mine, slot), (theirs, there), depth) for slot, there in enumerate(order))

    def _same_operand(self, mine: tuple[int, int], theirs: tuple[int, int], depth: int) -> bool:
        """One value, two constants, or two values that are alike themselves."""
        rows, others = (self._rows(side, *read) for side, read in ((self.own, mine), (self.other, theirs)))
        if any(self.own.sketch[r] >= 0 and self.other.sketch[q] >= 0 and self.pairing.same(self.own.sketch[r], self.other.sketch[q])
               for r in rows for q in others):
            return True
        here, there = ({b for r in found for b in side.bases(r)} for side, found in ((self.own, rows), (self.other, others)))
        if len(here) != 1 or len(there) != 1:
            return False
        a, b = here.pop(), there.pop()
        if self.own.program.nodes[a].op == "const" or self.other.program.nodes[b].op == "const":
            return self.own.program.nodes[a].op == self.other.program.nodes[b].op
        return self._are_alike(a, b, depth)

    def _are_alike(self, mine: int, theirs: int, depth: int) -> bool:
        if (mine, theirs) not in self._known:
            self._known[mine, theirs] = depth < DEEPEST and self.own.program.nodes[mine].kind == "arith" \
                and self._kind(self.own, mine) == self._kind(self.other, theirs) and not self._is_found(mine) \
                and not self.pairing.partners_here(self.other.value(theirs)) \
                and any(self._agree(mine, theirs, order, depth + 1) for order in self._orders(mine, theirs))
        return self._known[mine, theirs]

    @staticmethod
    def _rows(side: Any, consumer: int, slot: int) -> list[int]:
        return [r for r in side.rows_of[consumer] if side.slot[r] == slot]
