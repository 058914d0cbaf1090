"""The schedule diff: which reads are rounded on one side and not where the other side reads the same value.

What is compared is a read: (value, consumer). A cast that commutes with what follows it then vanishes by itself, and a
sum that is stored rounded but read unrounded by a norm is seen. A read of a rounded value is moved if
  - a matched consumer on the other side reads the same elements unrounded (and this side never does), or
  - the other side never forms the value, or forms it and never rounds it.
If the other side rounds the value but in no matched place, nothing is claimed: it is listed as unmatched. Nor is anything
where it rounds in the same place but forms other numbers there (another `eps`; alike.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphdiff.compare.alike import Alike
from graphdiff.compare.overlap import Overlap, members
from graphdiff.compare.parts import carriers, elements_read, parts
from graphdiff.compare.side import Side, base_format

NEARLY = 0.1
"""Operands whose covers differ by less are both the value (x * x)."""
LEAST_SHARE = 0.02
"""A smaller share of a sample's elements is sampling noise (colliding hashes), not a partial rounding."""


@dataclass
class MovedRead:
    """What one row of `side` reads with a rounding `event` that the other side lacks; a row over several values (a cat) has
    one for each of them that lacks it."""

    row: int
    event: str
    why: str
    bases: tuple[int, ...]
    """Nodes that form what is moved."""
    sketch: int
    """Its numbers: the row's, or the base's where the row holds other values too."""
    share: float = 1.0
    """Of the row's elements (1.0: all)."""
    part: float = 1.0
    """Share of the row's elements that the bases form: all, unless other values in it have the event too."""
    other_rows: list[int] = field(default_factory=list)
    """Rows of the other side that read the same elements unrounded."""
    other_nodes: list[int] = field(default_factory=list)
    """Nodes of the other side that form the value."""


@dataclass
class Verdicts:
    """moved, reads whose rounding is the same but in another mode, and events no claim is made about. alike: rounded on both
    sides in the same place, but other numbers."""

    moved: list[MovedRead] = field(default_factory=list)
    mode: list[MovedRead] = field(default_factory=list)
    unplaced: list[MovedRead] = field(default_factory=list)
    opaque: list[MovedRead] = field(default_factory=list)
    alike: list[MovedRead] = field(default_factory=list)


class Pairing:
    """Both directions of one side's view of the other: overlap() between them and with itself."""

    def __init__(self, own: Side, other: Side, across: Overlap, flipped: bool, within: Overlap) -> None:
        self.own, self.other, self.within = own, other, within
        self._across, self._flipped = across, flipped
        self._nodes_by_sketch: dict[int, list[int]] = {}
        for n, sketch in enumerate(other.data.value_sketch.tolist()):
            if sketch >= 0:
                self._nodes_by_sketch.setdefault(sketch, []).append(n)
        self._consumers_by_sketch: dict[int, list[int]] = {}
        for c in other.consumers:
            if other.value(c) >= 0:
                self._consumers_by_sketch.setdefault(other.value(c), []).append(c)
        self._own_consumers: dict[int, list[int]] = {}
        for c in own.consumers:
            if own.value(c) >= 0:
                self._own_consumers.setdefault(own.value(c), []).append(c)
        self._matched: dict[int, list[int]] = {}
        self.alike = Alike(self)
        self.behind: dict[int, list[int]] = {}
        """Own consumer -> the other side's consumers that stand for it where one side hides what the other spells out: an
        attention kernel and the matmul that reads its query."""

    def partners(self, sketch: int) -> list[int]:
        return self._across.partners_back(sketch) if self._flipped else self._across.partners(sketch)

    def partners_here(self, other: int) -> list[int]:
        """Our sketches that are the same value as one of the other side's."""
        return self._across.partners(other) if self._flipped else self._across.partners_back(other)

    def cover(self, own: int, other: int) -> float:
        """Share of our sketch that theirs holds."""
        return self._across.cover_back(other, own) if self._flipped else self._across.cover(own, other)

    def cover_back(self, own: int, other: int) -> float:
        return self._across.cover(other, own) if self._flipped else self._across.cover_back(own, other)

    def same(self, own: int, other: int) -> bool:
        return self._across.same(other, own) if self._flipped else self._across.same(own, other)

    def consumers(self, node: int) -> list[int]:
        """The other side's consumers that compute the same value as our consumer."""
        if node not in self._matched:
            self._matched[node] = sorted(c for s in self.partners(self.own.value(node)) for c in self._consumers_by_sketch.get(s, ()))
        return self._matched[node]

    def sums(self, node: int) -> list[int]:
        """The other side's sums that our adds, of which `node` is one, write out term by term."""
        last = self.own.total_of.get(node, node)
        if self.own.program.nodes[node].op != "add" or last not in self.own.unrolled:
            return []
        return [c for c in self.consumers(last) if self.other.program.nodes[c].op == "sum"]

    def is_partial(self, node: int) -> bool:
        """True of a value that is formed on the way to a sum alone: the sum is the value."""
        return node in self.own.partial_sums or node in self.own.total_of and bool(self.sums(node))

    def siblings(self, node: int) -> list[int]:
        """Our own consumers of the same value (recomputation), the node included."""
        sketch = self.own.value(node)
        return sorted({node, *(c for s in self.within.partners(sketch) for c in self._own_consumers.get(s, ()))})

    def nodes(self, sketch: int) -> list[int]:
        """The other side's nodes that hold (part of) our value."""
        return sorted(n for s in self.partners(sketch) for n in self.nodes_of(s))

    def nodes_of(self, sketch: int) -> list[int]:
        """The other side's nodes of one of its own sketches."""
        return self._nodes_by_sketch.get(sketch, [])


def schedule_diff(pairing: Pairing, is_opaque: Callable[[int], bool]) -> Verdicts:
    """Every event of `pairing.own` judged. is_opaque(row): the value lies inside something the other side hides."""
    result = Verdicts()
    own = pairing.own
    for row in range(len(own.consumer)):
        if own.sketch[row] < 0:
            continue
        if own.static[row]:
            _static(pairing, row, result)
            continue
        for event in own.events(row):
            _judge(pairing, row, event, is_opaque, result)
    return result


def _judge(p: Pairing, row: int, event: str, is_opaque: Callable[[int], bool], result: Verdicts) -> None:
    """The row as one read, or, where several values in it have the event, as one of each."""
    own = p.own
    bases, hashes = carriers(own, row, event), own.hashes(own.sketch[row])
    pieces = parts(own, row, bases, hashes) if len(bases) > 1 else []
    if not any(piece.hashes.size for piece in pieces):
        _judge_read(p, MovedRead(row, event, "", bases, own.sketch[row]), hashes, other_reads(p, row), is_opaque, result)
        return
    for piece in pieces:
        read = MovedRead(row, event, "", (piece.base,), own.value(piece.base), part=piece.share)
        if piece.hashes.size:
            _judge_read(p, read, piece.hashes, _reads_of_piece(p, row, piece.hashes), is_opaque, result)
        elif read.sketch >= 0:
            _judge_tiny(p, read, result)


def _judge_read(p: Pairing, read: MovedRead, mine: np.ndarray, found: list[int], is_opaque: Callable[[int], bool],
                result: Verdicts) -> None:
    """mine: the sampled elements of the row that are the read's. found: the other side's reads of them."""
    row, event = read.row, read.event
    if found:
        unrounded = [r for r in found if not covers(p.other, r, event) and not _rounded_beside(p.other, r, event)]
        rounded = [r for r in found if r not in unrounded]
        share = _share(p, read, mine, unrounded, rounded) if unrounded else 0.0
        if share > LEAST_SHARE:
            read.why, read.share, read.other_rows = "read unrounded by the matched consumer", share * read.part, unrounded
            read.other_nodes = p.nodes(read.sketch)
            result.moved.append(read)
        elif any(event not in p.other.events(r) and base_format(event) in map(base_format, p.other.events(r)) for r in found):
            read.why, read.other_rows = "rounded in another mode", found
            result.mode.append(read)
    elif is_opaque(row):
        read.other_nodes = p.nodes(read.sketch)
        if not any(_node_rounds(p.other, n, event) for n in read.other_nodes):  # else an input of what the other side hides, rounded on both sides
            read.why = "inside what the other side hides"
            result.opaque.append(read)
    else:
        _judge_unread(p, read, result)


def _judge_tiny(p: Pairing, read: MovedRead, result: Verdicts) -> None:
    """A value too small a part of its read to be sampled: moved if the other side takes all of that read unrounded."""
    found = other_reads(p, read.row)
    size = elements_read(p.own, read.row, read.bases[0])
    if size and found and not any(covers(p.other, r, read.event) for r in found):
        read.why, read.other_rows, read.other_nodes = "read unrounded by the matched consumer", found, p.nodes(read.sketch)
        read.share = read.part = min(1.0, size / p.own.count[read.row])
        result.moved.append(read)


def _judge_unread(p: Pairing, read: MovedRead, result: Verdicts) -> None:
    """A value that no matched consumer of the other side reads: moved if that side never forms it, or never rounds it."""
    read.other_nodes = p.nodes(read.sketch)
    if not read.other_nodes and (there := p.alike.rows(read.row)) and all(covers(p.other, r, read.event) for r in there):
        read.why = "rounded there too, with other numbers"
        result.alike.append(read)
    elif not read.other_nodes:
        read.why = "never formed"
        result.moved.append(read)
    elif not any(_node_rounds(p.other, n, read.event) for n in read.other_nodes):
        read.why = "formed, never rounded"
        result.moved.append(read)
    else:
        read.why = "rounded there, but read by nothing that matches"
        result.unplaced.append(read)


def covers(side: Side, row: int, event: str) -> bool:
    """True if a read has had this rounding, or holds numbers (never rounded here) that it would not change."""
    events = side.events(row)
    return base_format(event) in map(base_format, events) or (not events and base_format(event) in side.formats(row))


def _rounded_beside(side: Side, row: int, event: str) -> bool:
    """True if the same operand of the same node reads these elements rounded as well: two consumers merged into one.

    Which of the two is ours cannot be told, and one of them does round.
    """
    mine = side.hashes(side.sketch[row])
    return any(side.slot[r] == side.slot[row] and side.sketch[r] >= 0 and covers(side, r, event)
               and np.isin(mine, side.hashes(side.sketch[r])).mean() > LEAST_SHARE
               for r in side.rows_of[side.consumer[row]] if r != row)


def _node_rounds(side: Side, node: int, event: str) -> bool:
    state = int(side.data.value_state[node])
    if state < 0:
        return True  # elements differ: some are rounded
    formats, events = side.data.states[state]
    return base_format(event) in map(base_format, events) or base_format(event) in formats


def other_reads(p: Pairing, row: int) -> list[int]:
    """Rows in which the other side's matched consumers read the same value."""
    own, other, sketch = p.own, p.other, p.own.sketch[row]
    consumer = own.consumer[row]
    if consumer < 0:
        same_place = [r for r in other.rows_of.get(consumer, ()) if other.total[r] == own.total[row]]
        if any(p.same(sketch, other.sketch[r]) for r in same_place) or not p.nodes(sketch):
            return same_place
        candidates = [r for c in other.rows_of if c < 0 for r in other.rows_of[c]]
        return [r for r in candidates if other.sketch[r] >= 0 and p.same(sketch, other.sketch[r])]
    return [r for c in _matched_consumers(p, consumer) for r in _reads_in(p, sketch, c, consumer)]


def _matched_consumers(p: Pairing, consumer: int) -> tuple[int, ...]:
    """The other side's consumers that stand for ours."""
    matched = p.consumers(consumer) or p.consumers(p.own.sum_of.get(consumer, consumer)) or p.sums(consumer)
    return (*matched, *p.behind.get(consumer, ()))


def _rows_there(p: Pairing, there: int, consumer: int) -> list[list[int]]:
    """Rows of the other side's consumer, or of what stands for it: with the product that it alone reads; of adds that write
    out a sum of ours each term by itself. Of the rows of one list, those of one slot are ours."""
    other = p.other
    if p.own.program.nodes[consumer].op == "sum" and there in other.unrolled:
        return [[r] for add in other.unrolled[there] for r in other.rows_of[add]]
    return [[*other.rows_of.get(there, ()), *other.rows_of.get(other.products.get(there, there), ())]]


def _reads_of_piece(p: Pairing, row: int, mine: np.ndarray) -> list[int]:
    """Rows in which the other side's matched consumers read some of these elements, among others: a row that is mostly of
    other values is found too."""
    own, other, consumer = p.own, p.other, p.own.consumer[row]
    if consumer < 0:
        there = [[r for r in other.rows_of.get(consumer, ()) if other.total[r] == own.total[row]]]
    else:
        there = [rows for c in _matched_consumers(p, consumer) for rows in _rows_there(p, c, consumer)]
    found = []
    for rows in there:
        held = {r: _held(own, row, mine, other, r) for r in rows if other.sketch[r] >= 0}
        by_slot: dict[int, float] = {}
        for r, share in held.items():
            by_slot[other.slot[r]] = by_slot.get(other.slot[r], 0.0) + share
        best = max(by_slot.values(), default=0.0)
        found += [r for r, share in held.items() if share > LEAST_SHARE and by_slot[other.slot[r]] > best - NEARLY]
    return found or (other_reads(p, row) if consumer < 0 else [])


def _held(own: Side, row: int, mine: np.ndarray, other: Side, there: int) -> float:
    """Share of sampled elements of our row that a row of the other side holds."""
    mine = mine[mine <= min(own.data.thresholds[own.sketch[row]], other.data.thresholds[other.sketch[there]])]
    return float(members(mine, other.hashes(other.sketch[there])).mean()) if mine.size else 0.0


def _reads_in(p: Pairing, sketch: int, there: int, consumer: int) -> list[int]:
    """Reads of our value in one of the other side's consumers."""
    lists = _rows_there(p, there, consumer)
    if len(lists) == 1:
        return _best_slots(p, sketch, lists[0])
    rows = [r for (r,) in lists if p.other.sketch[r] >= 0 and p.same(sketch, p.other.sketch[r])]
    inside = [p.cover_back(sketch, p.other.sketch[r]) for r in rows]
    return [r for r, share in zip(rows, inside) if share > max(inside) - NEARLY]


def _best_slots(p: Pairing, sketch: int, rows: Sequence[int]) -> list[int]:
    """A consumer's rows that read our value: of its operands the one(s) that cover it best. Low-precision leaves share
    bit patterns, so mere overlap would take a weight for the input it is multiplied with."""
    other = p.other
    found = [r for r in rows if other.sketch[r] >= 0 and p.same(sketch, other.sketch[r])]
    if len({other.slot[r] for r in found}) < 2:
        return found
    score: dict[int, float] = {}
    for r in found:
        both = p.cover(sketch, other.sketch[r]) + p.cover_back(sketch, other.sketch[r])
        score[other.slot[r]] = max(score.get(other.slot[r], 0.0), both)
    best = max(score.values())
    return [r for r in found if score[other.slot[r]] > best - NEARLY]


def _share(p: Pairing, read: MovedRead, mine: np.ndarray, unrounded: list[int], rounded: list[int]) -> float:
    """Share of the read's sampled elements that the other side reads unrounded and this side reads only rounded.

    An element that the other side reads both ways, in two copies of one computation (a fused kernel computes each half
    of a rotation anew), counts by its unrounded reads. rounded: the other side's reads that do round.
    """
    own, other = p.own, p.other
    limit = own.data.thresholds[own.sketch[read.row]]
    for r in (*unrounded, *rounded):
        limit = min(limit, other.data.thresholds[other.sketch[r]])
    mine = mine[mine <= limit]
    if mine.size == 0:
        return 0.0
    bare, held = _times(other, mine, unrounded), _times(other, mine, rounded)
    there = bare / np.maximum(1, bare + held)
    if own.consumer[read.row] < 0 and not bare.any() and not held.any():
        # The same output by position, but no number in common: all of it is what the other side has there.
        return 1.0
    for r in _own_unrounded(p, read, never=not rounded):
        there[members(mine, own.hashes(own.sketch[r]))] = 0
    return float(there.mean())


def _times(side: Side, hashes: np.ndarray, rows: list[int]) -> np.ndarray:
    """How many of the rows read each element."""
    return sum((members(hashes, side.hashes(side.sketch[r])) for r in rows), np.zeros(hashes.size))


def _own_unrounded(p: Pairing, read: MovedRead, never: bool) -> list[int]:
    """Rows in which this side's same consumers read these elements unrounded.

    None where the other side never rounds: whichever of ours is its read, one of them differs from it.
    """
    own, consumer = p.own, p.own.consumer[read.row]
    if consumer < 0 or never:
        return []
    return [r for c in p.siblings(consumer) for r in own.rows_of[c]
            if r != read.row and own.sketch[r] >= 0 and not covers(own, r, read.event) and p.within.same(read.sketch, own.sketch[r])]


def _static(p: Pairing, row: int, result: Verdicts) -> None:
    """Weights and tables: paired by their place in the matched consumer, then by their BF16 bits."""
    own, other = p.own, p.other
    if own.consumer[row] < 0:
        return
    there = [r for c in p.consumers(own.consumer[row]) for r in other.rows_of[c]
             if other.sketch[r] >= 0 and p.same(own.sketch[row], other.sketch[r])]
    if not there:
        return
    events = own.events(row) or _stored(own, row)
    for event in events:
        bare = [r for r in there if not covers(other, r, event) and event not in _stored(other, r)]
        if bare and len(bare) == len(there):
            why = "rounded where the other side computes on" if own.events(row) else "stored in a narrower format"
            result.moved.append(MovedRead(row, event, why, own.bases(row), own.sketch[row], other_rows=bare))


def _stored(side: Side, row: int) -> tuple[str, ...]:
    """The low format a static leaf is stored in, as an event: a table kept in BF16 was rounded when it was made."""
    from graphdiff.program.dtypes import LOW

    formats = {side.program.nodes[b].dtype for b in side.bases(row) if side.program.nodes[b].op == "leaf"}
    low = sorted(f for f in formats if f in LOW)
    return tuple(low) if formats and len(low) == len(formats) else ()
