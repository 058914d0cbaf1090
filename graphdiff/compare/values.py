"""Moved reads grouped into values: a value is counted once, however many reads, heads or tokens repeat it."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import networkx

from graphdiff.compare.moved import MovedRead, Pairing
from graphdiff.compare.side import Side
from graphdiff.rules.graph import ValueGraph

PART = 0.6
"""A read of which more than this share lies in another read is the same value (a slice, a broadcast)."""


@dataclass
class MovedValue:
    """One value of a side with one rounding the other side lacks."""

    reads: list[MovedRead]

    @property
    def event(self) -> str:
        return self.reads[0].event

    def rows(self) -> list[int]:
        return [m.row for m in self.reads]


def share_of(pairing: Pairing, value: MovedValue) -> float:
    """Part of a value's reads, element by element, that only this side rounds: its moved reads among all reads of it by
    the same consumers and their copies."""
    own = pairing.own
    among: dict[tuple[int, int], float] = {}
    parts: dict[int, float] = {}
    for m in value.reads:
        parts[m.row] = parts.get(m.row, 0.0) + m.part
    for m in value.reads:
        row = m.row
        copies = pairing.siblings(own.consumer[row]) if own.consumer[row] >= 0 else [own.consumer[row]]
        for r in {r for c in copies for r in own.rows_of[c]
                  if r == row or own.sketch[r] >= 0 and pairing.within.same(m.sketch, own.sketch[r])}:
            key = (own.consumer[r], own.slot[r])
            # A slot that reads one value in several states holds the rest of it too; one that reads several does not.
            held = own.total[r] if len(own.bases(r)) == 1 else own.count[r] * parts.get(r, 1.0)
            among[key] = max(among.get(key, 0.0), held)
    return min(1.0, sum(m.share * own.count[m.row] for m in value.reads) / max(1.0, sum(among.values())))


def group_values(pairing: Pairing, moved: list[MovedRead]) -> list[MovedValue]:
    """Union of reads that are (parts of) the same value and lack the same rounding."""
    same = networkx.Graph()
    same.add_nodes_from(range(len(moved)))
    by_sketch: dict[tuple[int, str], list[int]] = {}
    by_base: dict[tuple[tuple[int, ...], str], list[int]] = {}
    own = pairing.own
    for i, m in enumerate(moved):
        by_sketch.setdefault((m.sketch, m.event), []).append(i)
        by_base.setdefault((m.bases, m.event), []).append(i)
    for (sketch, event), here in by_sketch.items():
        partners = [s for s in (sketch, *pairing.within.partners(sketch))
                    if s == sketch or max(pairing.within.cover(sketch, s), pairing.within.cover_back(sketch, s)) > PART]
        for s in partners:
            for j in by_sketch.get((s, event), ()):
                same.add_edge(here[0], j)
    for (bases, _), here in by_base.items():
        # Slices, selections and row maxima of what one node computes are that node's one value; slices of a leaf are
        # what their maker merged (a cos/sin cache), and stay apart.
        if len(bases) == 1 and own.program.nodes[bases[0]].kind != "leaf":
            same.add_edges_from((here[0], i) for i in here[1:])
    same.add_edges_from(_split_in_parts(pairing, moved))
    same.add_edges_from(_repeated_in_one_read(pairing, moved))
    groups = sorted(map(sorted, networkx.connected_components(same)))
    return [MovedValue([moved[i] for i in group]) for group in groups]


def _split_in_parts(pairing: Pairing, moved: list[MovedRead]) -> list[tuple[int, int]]:
    """Pairs of reads whose values this side computes in parts (the halves of a rotation) and the other side whole.

    Parts of one value: computed by the same ops from the same leaves and anchors (or parts of one leaf), and both inside
    one value that the other side reads, or forms in one node.
    """
    kinds: dict[tuple, list[int]] = {}
    graph = ValueGraph(pairing.own)
    for i, m in enumerate(moved):
        origins = {graph.canonical(b) for b in m.bases}
        if len(origins) == 1:
            kinds.setdefault((m.event, *origins), []).append(i)
    read_there = {s for s in pairing.other.sketch if s >= 0}
    pairs = []
    for (_, origin), here in kinds.items():
        op = pairing.own.program.nodes[origin].op
        whole: dict[int, int] = {}
        for i in here:
            sketch = moved[i].sketch
            for b in pairing.partners(sketch):
                if pairing.cover(sketch, b) > PART and (op != "leaf" or b in read_there):
                    if b in whole:
                        pairs.append((whole[b], i))
                    whole.setdefault(b, i)
    return pairs


def _repeated_in_one_read(pairing: Pairing, moved: list[MovedRead]) -> list[tuple[int, int]]:
    """Pairs of values in one row (a cat) that are one: made by one place of the source (a loop over heads or experts),
    or formed by one node of the other side (halves against the whole)."""
    by_row: dict[tuple[int, str], list[int]] = {}
    for i, m in enumerate(moved):
        if m.part < 1.0:
            by_row.setdefault((m.row, m.event), []).append(i)
    pairs = []
    for here in by_row.values():
        first: dict[Hashable, int] = {}
        for i in here:
            for key in (_place(pairing.own, moved[i].bases[0]), *_wholes(pairing, moved[i].sketch)):
                pairs.append((first.setdefault(key, i), i))
    return pairs


def _place(side: Side, node: int) -> Hashable:
    """Where a node stands, layers aside; nodes that stand nowhere are their own place."""
    site = side.program.site(node)
    if not (site.file or site.code or site.name):
        return node
    return side.program.nodes[node].op, site.kernel, site.name, site.file, site.line, site.column, site.end_column, site.code, site.code_line


def _wholes(pairing: Pairing, sketch: int) -> list[tuple[str, int]]:
    """Nodes of the other side that form (nearly) all of a value."""
    other = pairing.other
    return [("whole", n) for s in pairing.partners(sketch) if pairing.cover(sketch, s) > PART
            for n in pairing.nodes_of(s) if not other.is_exact(n) and other.program.nodes[n].kind != "leaf"]
