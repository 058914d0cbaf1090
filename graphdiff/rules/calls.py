"""Calls of eager code: which nodes one call in the source was recorded as, and which of them is what the source text says.

`torch.logsumexp(x, -1)` is five ops that round, all with one source text: the last of them is the logsumexp, the others are
steps of it.
"""

from __future__ import annotations

from typing import Any

from graphdiff.program import Site


class Calls:
    """Asked by node, remembered."""

    def __init__(self, side: Any) -> None:
        self.side, self.program = side, side.program
        self._known: dict[int, tuple[int, ...]] = {}

    def of(self, node: int) -> tuple[int, ...]:
        """The nodes (no leaves) of the call a node was recorded for; empty where the source's columns are not known."""
        if node not in self._known:
            place = _place(self.program.site(node))
            self._known.update({node: ()} if place is None else self._split(node, place))
        return self._known.get(node, ())

    def _split(self, node: int, place: tuple) -> dict[int, tuple[int, ...]]:
        """Every node recorded in a row at one place of the source, by call: a loop calls more than once there."""
        first = last = node
        while first > 0 and _place(self.program.site(first - 1)) == place:
            first -= 1
        while last + 1 < len(self.program.nodes) and _place(self.program.site(last + 1)) == place:
            last += 1
        run = [n for n in range(first, last + 1) if self.program.nodes[n].kind != "leaf"]
        period = self._period(run)
        return {n: tuple(run[i - i % period:i - i % period + period]) for i, n in enumerate(run)}

    def _period(self, run: list[int]) -> int:
        """Nodes of one call: the shortest piece the run repeats. What repeats one op that the call does not name (`x ** 3`
        multiplies twice) is one call."""
        ops = [self.program.nodes[n].op for n in run]
        for period in range(1, len(run)):
            piece = {op for op in ops[:period] if op != "round"}
            if len(run) % period == 0 and ops == ops[:period] * (len(run) // period) and (len(piece) > 1 or not self.is_composite(run[0])):
                return period
        return max(1, len(run))

    def is_step(self, node: int) -> bool:
        """True if the node's value is not what its source text says, but a step on the way there."""
        results = [n for n in self.of(node) if self.program.nodes[n].op != "round"]
        return bool(results) and node not in self.side.bases_of_node(results[-1])

    def is_composite(self, node: int) -> bool:
        """True if the call is of another op than the node's: several steps, or another way of writing it."""
        site = self.program.site(node)
        if self.program.nodes[node].kind == "leaf":
            return False
        return _place(site) is not None and site.kernel.removeprefix("aten.").rstrip("_") != self.program.nodes[node].op


def _place(site: Site) -> tuple | None:
    return (site.file, site.line, site.column, site.end_line, site.end_column, site.module) if site.file and site.end_column else None
