"""Moved reads grouped into values: a value is counted once, however many reads, heads or tokens repeat it."""

from __future__ import annotations

from dataclasses import dataclass

from graphdiff.compare.moved import MovedRead, Pairing
from graphdiff.compare.side import Side

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


def group_values(pairing: Pairing, moved: list[MovedRead]) -> list[MovedValue]:
    """Union of reads that are (parts of) the same value and lack the same rounding."""
    parent = list(range(len(moved)))

    def find(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    by_sketch: dict[tuple[int, str], list[int]] = {}
    by_base: dict[tuple[tuple[int, ...], str], list[int]] = {}
    own = pairing.own
    for i, m in enumerate(moved):
        by_sketch.setdefault((own.sketch[m.row], m.event), []).append(i)
        by_base.setdefault((own.bases(m.row), m.event), []).append(i)
    for (sketch, event), here in by_sketch.items():
        partners = [s for s in (sketch, *pairing.within.partners(sketch))
                    if s == sketch or max(pairing.within.cover(sketch, s), pairing.within.cover_back(sketch, s)) > PART]
        for s in partners:
            for j in by_sketch.get((s, event), ()):
                parent[find(here[0])] = find(j)
    for (bases, _), here in by_base.items():
        # Slices, selections and row maxima of what one node computes are that node's one value.
        if len(bases) == 1:
            for i in here[1:]:
                parent[find(i)] = find(here[0])
    for i, j in _split_in_parts(pairing, moved):
        parent[find(i)] = find(j)
    groups: dict[int, list[MovedRead]] = {}
    for i, m in enumerate(moved):
        groups.setdefault(find(i), []).append(m)
    return [MovedValue(reads) for reads in groups.values()]


def _split_in_parts(pairing: Pairing, moved: list[MovedRead]) -> list[tuple[int, int]]:
    """Pairs of reads whose values this side computes in parts (the halves of a rotation) and the other side whole.

    Parts of one value: computed by the same op from the same bases, and both inside one node's value over there.
    """
    own = pairing.own
    kinds: dict[tuple, list[int]] = {}
    for i, m in enumerate(moved):
        bases = own.bases(m.row)
        if len(bases) == 1 and own.program.nodes[bases[0]].kind == "arith":
            kinds.setdefault((m.event, own.program.nodes[bases[0]].op, _operand_bases(own, bases[0])), []).append(i)
    pairs = []
    for here in kinds.values():
        whole: dict[int, int] = {}
        for i in here:
            sketch = own.sketch[moved[i].row]
            for b in pairing.partners(sketch):
                if pairing.cover(sketch, b) > PART:
                    if b in whole:
                        pairs.append((whole[b], i))
                    whole.setdefault(b, i)
    return pairs


def _operand_bases(side: Side, node: int) -> tuple[int, ...]:
    return tuple(sorted({b for o in side.program.nodes[node].operands for m in o.nodes for b in side.bases_of_node(m)}))
