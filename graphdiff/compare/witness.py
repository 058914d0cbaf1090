"""The proof of a region: run it both ways and compare bits.

`before`: training with every other region already under inference's schedule, this one under its own. `after`: this one
too. Equal bits after, and not before, is what the claim means. float32 arithmetic first; if a few elements still
differ, float64 arithmetic with the same roundings tells float32 operation order from a rounding that was missed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphdiff.compare.moved import MovedRead, other_reads
from graphdiff.compare.outputs import check_outputs, checked_pair
from graphdiff.compare.side import Side, base_format
from graphdiff.compare.transplant import Bench
from graphdiff.compare.woken import reason_of, woken
from graphdiff.errors import Damage, GraphdiffError
from graphdiff.program import Evaluation
from graphdiff.program.dtypes import FORMATS

SAME_NUMBER = 1e-8
"""Two elements are the same element if their skeleton numbers agree to this (relative); pins are float32."""


@dataclass
class BitCount:
    """Two arrays compared bit by bit (NaN equals NaN, -0 equals 0). signed_share: of the differing elements, those
    where inference is greater."""

    elements: int = 0
    differing: int = 0
    max_ulp: int = 0
    max_abs: float = 0.0
    greater: int = 0
    nonfinite: int = 0
    flips: int = 0
    """Elements left out because a discrete choice (top-k, argmax) fell differently on the two sides."""

    def add(self, other: BitCount) -> None:
        self.elements += other.elements
        self.differing += other.differing
        self.max_ulp, self.max_abs = max(self.max_ulp, other.max_ulp), max(self.max_abs, other.max_abs)
        self.greater += other.greater
        self.nonfinite += other.nonfinite
        self.flips += other.flips


@dataclass
class Proof:
    """bitwise: None if it could not be run, and `reason` says why."""

    bitwise: bool | None
    before: BitCount | None = None
    after: BitCount | None = None
    arithmetic: str = ""
    reason: str = ""


def prove_region(bench: Bench, reads: list[MovedRead]) -> Proof:
    """Witness of one region: all its moved reads, of both sides."""
    impossible = [bench.changes.impossible[id(m)] for m in reads if id(m) in bench.changes.impossible]
    outputs = _outputs(bench, reads)
    if not outputs:
        return Proof(None, reason="no value behind the region is read by both sides")
    try:
        mine = frozenset(id(m) for m in reads)
        before = _compare(bench, outputs, bench.without(reads, np.float32), np.float32, mine)
        if impossible:
            return Proof(None, before, reason=impossible[0])
        return _proved(bench, before, lambda precision: _compare(bench, outputs, bench.transplanted(precision), precision))
    except Damage:
        raise
    except GraphdiffError as error:
        return Proof(None, reason=str(error))


def prove_program(bench: Bench) -> Proof:
    """Witness of everything: training's outputs under inference's whole schedule against inference's outputs."""
    pairs = _program_outputs(bench)
    if not pairs:
        return Proof(None, reason="the two sides have no output in common")
    try:
        everything = frozenset(id(m) for m, _, _ in bench.changes.reverse)
        before = _compare(bench, pairs, bench.original(np.float32), np.float32, everything)
        if bench.changes.impossible:
            return Proof(None, before, reason=next(iter(bench.changes.impossible.values())))
        return _proved(bench, before, lambda precision: _compare(bench, pairs, bench.transplanted(precision), precision))
    except Damage:
        raise
    except GraphdiffError as error:
        return Proof(None, reason=str(error))


def _proved(bench: Bench, before: BitCount, after_in) -> Proof:
    after = after_in(np.float32)
    if after.elements == 0:
        return Proof(None, before, reason="no element of the outputs could be paired")
    reason = "a value that training never forms: inference's rounding of it was undone instead" if bench.changes.reverse else ""
    if after.flips:
        reason = f"{after.flips} elements left out, where a discrete choice fell differently; " + reason
    if after.differing == 0:
        return Proof(True, before, after, "float32", reason)
    exact = after_in(np.float64)
    if exact.differing == 0:
        return Proof(True, before, after, "float64",
                     f"{after.differing} of {after.elements} elements differ in float32 by operation order only; {reason}".rstrip("; "))
    return Proof(False, before, after, "float32", reason_of(woken(bench), bench.training))


def _outputs(bench: Bench, reads: list[MovedRead]) -> list[tuple[int, int]]:
    """(training row, inference row) pairs: what leaves the region, as both sides read it."""
    side = bench.training
    changed = {read for _, read, _ in bench.changes.by_read}
    mine = {id(m) for m in reads}
    stack = [read[0] for m, read, _ in bench.changes.by_read if id(m) in mine]
    stack += [n for m, read, _ in bench.changes.reverse if id(m) in mine for n in _training_nodes(bench, read[0])]
    if not stack:
        stack = [side.consumer[m.row] for m in reads if m in bench.diff.training.verdicts.moved]
        stack += [n for m in reads for n in m.other_nodes if m in bench.diff.inference.verdicts.moved]
    seen: set[int] = set()
    rows: set[int] = set()
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        if n < 0:
            rows.update(side.rows_of[n])
            continue
        for base in (n,) if not side.is_exact(n) else side.bases_of_node(n):
            for row in side.readers.get(base, ()):
                consumer = side.consumer[row]
                if (consumer, side.slot[row]) not in changed and (
                        side.events(row) or consumer < 0 or side.program.nodes[consumer].kind in ("anchor", "opaque")):
                    rows.add(row)
                else:
                    stack.append(consumer)
    if not rows:
        return _program_outputs(bench)
    pairs = []
    for row in sorted(rows):
        there = other_reads(bench.diff.training.pairing, row) if side.sketch[row] >= 0 else []
        same = [r for r in there if set(map(base_format, bench.inference.events(r))) == set(map(base_format, side.events(row)))]
        if same or there:
            pairs.append((row, (same or there)[0]))
    return pairs


def _training_nodes(bench: Bench, node: int) -> list[int]:
    """Training's nodes of an inference consumer's value (an output: itself)."""
    if node < 0:
        return [node]
    sketch = bench.inference.value(node)
    return bench.diff.inference.pairing.nodes(sketch) if sketch >= 0 else []


def _program_outputs(bench: Bench) -> list[tuple[int, int]]:
    checked = [(c.training, c.inference) for c in check_outputs(bench) if c.training is not None and c.inference is not None
               and c.how != "shape" and c.elements]
    if checked or bench.diff.empty:
        return [(bench.training.rows_of[-1 - here][0], bench.inference.rows_of[-1 - there][0]) for here, there in checked]
    pairs = []
    for i in range(len(bench.training.program.outputs)):
        rows = bench.training.rows_of.get(-1 - i, [])
        there = bench.inference.rows_of.get(-1 - i, [])
        if rows and there and bench.training.total[rows[0]] == bench.inference.total[there[0]]:
            pairs.append((rows[0], there[0]))
        elif rows and bench.training.sketch[rows[0]] >= 0:
            other = other_reads(bench.diff.training.pairing, rows[0])
            if other:
                pairs.append((rows[0], other[0]))
    return pairs


def _compare(bench: Bench, pairs: list[tuple[int, int]], training: Evaluation, precision: type,
             without: frozenset[int] = frozenset()) -> BitCount:
    total = BitCount()
    inference = bench.reference(precision, without)
    for row, there in pairs:
        own = _read(bench.training, training, row)
        other = _read(bench.inference, inference, there)
        # What is stored unrounded is stored as float32, in whatever arithmetic it was computed.
        own, other = own.astype(np.float32), other.astype(np.float32)
        mine, theirs = _aligned(bench, row, there)
        # In units of the rounded type, whichever side rounds.
        events = bench.training.events(row) or bench.inference.events(there)
        total.add(count_bits(own.reshape(-1)[mine], other.reshape(-1)[theirs], base_format(events[-1]) if events else "float32"))
        total.flips += own.size - mine.size if bench.training.consumer[row] < 0 else 0
    return total


def _read(side: Side, evaluation: Evaluation, row: int) -> np.ndarray:
    return evaluation.read(side.operand(row), (side.consumer[row], side.slot[row]))


def _aligned(bench: Bench, row: int, there: int) -> tuple[np.ndarray, np.ndarray]:
    """Flat indices of the same elements in both reads, by their skeleton numbers."""
    key = ("aligned", row, there)
    return bench.once(key, lambda: _align(bench, row, there))


def _align(bench: Bench, row: int, there: int) -> tuple[np.ndarray, np.ndarray]:
    own = _read(bench.training, bench.skeletons[id(bench.training)], row).reshape(-1)
    other = _read(bench.inference, bench.skeletons[id(bench.inference)], there).reshape(-1)
    everything = np.arange(own.size)
    ends = bench.training.consumer[row], bench.inference.consumer[there]
    if max(ends) < 0 and own.size == other.size and (check := checked_pair(bench, -1 - ends[0], -1 - ends[1])):
        if check.same or bench.diff.empty:
            return everything, everything  # one computation, or two: either way what stands in one place is compared
    if own.size == other.size:
        close = _close(own, other)
        if bench.training.consumer[row] < 0 and close.mean() < 0.5:
            return everything, everything  # the same output by place, computed to other float32 constants
        if close.mean() > 0.5:
            return everything[close], everything[close]
    order = np.argsort(other, kind="stable")
    spots = np.clip(np.searchsorted(other[order], own), 0, other.size - 1)
    left = np.clip(spots - 1, 0, None)
    nearer = np.abs(other[order][left] - own) < np.abs(other[order][spots] - own)
    spots = np.where(nearer, left, spots)
    ok = _close(own, other[order][spots])
    return everything[ok], order[spots][ok]


def _close(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return (np.abs(a - b) <= SAME_NUMBER * np.maximum(np.abs(a), np.abs(b))) | (a == b) | (np.isnan(a) & np.isnan(b))


def count_bits(training: np.ndarray, inference: np.ndarray, dtype: str) -> BitCount:
    """Compare two equally long arrays; ulp are those of `dtype` at the larger of the two numbers."""
    a, b = training.astype(np.float64), inference.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    finite = np.isfinite(a) & np.isfinite(b)
    differ = ~same & finite
    result = BitCount(int(a.size), int((~same).sum()), nonfinite=int((~same & ~finite).sum()))
    if differ.any():
        gap = np.abs(a - b)[differ]
        f = FORMATS[dtype]
        _, exponent = np.frexp(np.maximum(np.abs(a), np.abs(b))[differ])
        ulp = gap / np.ldexp(1.0, np.maximum(exponent - f.precision, f.quantum))
        result.max_ulp, result.max_abs = max(1, int(min(np.rint(ulp.max()), 2**53))), float(gap.max())
        result.greater = int((b > a)[differ].sum())
    return result
