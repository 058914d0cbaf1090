"""One side under the other's schedule: the changes that give training inference's roundings, and their evaluation.

  training rounds, inference does not   the read takes the value before that rounding
  inference rounds, training does not   the read is rounded as well (if training forms the value)
  a leaf stored in a narrower format    training's leaf takes the numbers inference computes with
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from typing import Literal

import numpy as np

from graphdiff.compare.diff import Diff
from graphdiff.compare.moved import MovedRead
from graphdiff.compare.side import MODE_SEPARATOR, Side, base_format
from graphdiff.probe.dequantise import Skeleton
from graphdiff.probe.sketch import element_hashes
from graphdiff.program import Change, Evaluation, Options
from graphdiff.program.evaluate import Read

WHOLE = 0.98
BOTH_WAYS = "inference reads it rounded in one copy of the computation and unrounded in another; training reads it once"


@dataclass
class Changes:
    """Changes to training's schedule, by the moved read that asks for them."""

    by_read: list[tuple[MovedRead, Read, Change]] = field(default_factory=list)
    reverse: list[tuple[MovedRead, Read, Change]] = field(default_factory=list)
    """Changes to inference's own schedule: roundings of values that training never forms, undone."""
    impossible: dict[int, str] = field(default_factory=dict)
    """id() of a moved read that cannot be transplanted -> why."""

    def options(self, without: frozenset[int] = frozenset()) -> dict[Read, list[Change]]:
        """Changes by read; `without`: id()s of moved reads left as they are."""
        found: dict[Read, list[Change]] = {}
        for m, read, change in self.by_read:
            if id(m) not in without:
                found.setdefault(read, []).append(change)
        return found


class Bench:
    """Both sides ready to be evaluated: schedules, skeletons (for pairing elements), pinned anchors.

    anchors: "pinned" takes the probe's numbers for matmuls, attention and embeddings, the same on both sides; "computed"
    computes them from the weights, so that a difference travels through the whole program (captures with all weights).
    """

    def __init__(self, diff: Diff, wide_leaves: dict[int, np.ndarray] | None = None,
                 anchors: Literal["pinned", "computed"] = "pinned") -> None:
        self.diff, self.anchors = diff, anchors
        self.inference, self.training = diff.inference.side, diff.training.side
        self.wide_leaves = wide_leaves or {}
        self.skeletons = {id(s): self._skeleton(s) for s in (self.inference, self.training)}
        self.changes = self._plan()
        self._cache: dict = {}

    @staticmethod
    def _skeleton(side: Side) -> Skeleton:
        return Skeleton(side.program, side.bits, static_rule=bool(side.data.pins), pins=dict(side.data.pins),
                        substitutes=side.substitutes)

    def evaluation(self, side: Side, precision: type, changes: dict[Read, list[Change]] | None = None,
                   leaves: dict[int, np.ndarray] | None = None) -> Evaluation:
        pins = dict(side.data.pins) if self.anchors == "pinned" else {}
        pins.update(leaves or {})
        return Evaluation(side.program, side.bits, Options(precision=precision, pins=pins, changes=changes or {}))

    def reference(self, precision: type, without: frozenset[int] = frozenset()) -> Evaluation:
        """Inference under its own schedule, but for roundings that only it can undo."""
        changes: dict[Read, list[Change]] = {}
        for m, read, change in self.changes.reverse:
            if id(m) not in without:
                changes.setdefault(read, []).append(change)
        return self.once(("inference", precision, without & {id(m) for m, _, _ in self.changes.reverse}),
                          lambda: self.evaluation(self.inference, precision, changes))

    def transplanted(self, precision: type) -> Evaluation:
        """Training under inference's schedule."""
        return self.once(("training", precision),
                          lambda: self.evaluation(self.training, precision, self.changes.options(), self.wide_leaves))

    def original(self, precision: type) -> Evaluation:
        """Training under its own schedule."""
        return self.once(("original", precision), lambda: self.evaluation(self.training, precision))

    def without(self, reads: list[MovedRead], precision: type) -> Evaluation:
        """Training with every change but those of `reads`: what the region adds on its own."""
        full = self.transplanted(precision)
        keep = frozenset(id(m) for m in reads)
        leaves = self.wide_leaves
        if any(m.bases[:1] and m.bases[0] in leaves for m in reads if m in self.diff.training.verdicts.moved):
            leaves = {}
        partial = self.evaluation(self.training, precision, self.changes.options(keep), leaves)
        if leaves is self.wide_leaves:
            touched = self._descendants({read[0] for m, read, _ in self.changes.by_read if id(m) in keep})
            partial.values.update({n: v for n, v in full.values.items() if n not in touched})
        return partial

    def _descendants(self, nodes: set[int]) -> set[int]:
        start = [n for n in nodes if n >= 0]
        if not start:
            return set()
        found = set(start)
        for n in range(min(start), len(self.training.program.nodes)):
            if n not in found and n not in self.training.data.pins and \
                    any(m in found for o in self.training.program.nodes[n].operands for m in o.nodes):
                found.add(n)
        return found

    def once(self, key: tuple, make: Any) -> Any:
        """make(), computed once per key."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    # ---- the plan
    def _plan(self) -> Changes:
        changes = Changes()
        for m in self.diff.training.verdicts.moved:
            self._unround(changes, m)
        for m in self.diff.inference.verdicts.moved:
            self._round(changes, m)
        for m in self.diff.training.verdicts.mode:
            self._other_mode(changes, m)
        return changes

    def _unround(self, changes: Changes, m: MovedRead) -> None:
        side = self.training
        read = (side.consumer[m.row], side.slot[m.row])
        leaves = [b for b in m.bases if side.program.nodes[b].kind == "leaf"]
        if m.why == "stored in a narrower format" or any(b in self.wide_leaves for b in leaves):
            if not all(b in self.wide_leaves for b in leaves):
                changes.impossible[id(m)] = "training holds this table only in the narrower format"
                return
        mask = self._mask(side, m) if m.share < WHOLE * m.part else None
        if m.share < WHOLE * m.part and mask is None:
            changes.impossible[id(m)] = BOTH_WAYS
            return
        if m.part < 1.0:
            mask = self._formed_by(side, m) if mask is None else mask & self._formed_by(side, m)
        changes.by_read.append((m, read, Change(unround=frozenset({base_format(m.event)}), mask=mask)))

    def _round(self, changes: Changes, m: MovedRead) -> None:
        dtype, _, mode = m.event.partition(MODE_SEPARATOR)
        rows = m.other_rows or [r for n in m.other_nodes for b in self.training.bases_of_node(n) for r in self.training.readers.get(b, ())]
        if not rows:
            read = (self.inference.consumer[m.row], self.inference.slot[m.row])
            mask = self._formed_by(self.inference, m) if m.part < 1.0 else None
            changes.reverse.append((m, read, Change(unround=frozenset({dtype}), mask=mask)))
            return
        if mode == "stochastic":
            changes.impossible[id(m)] = "stochastic rounding has no single answer"
            return
        for row in sorted(set(rows)):
            read = (self.training.consumer[row], self.training.slot[row])
            whole = WHOLE <= m.share < 1 and self.inference.total[m.row] == self.training.total[row]  # but for a discrete choice
            mask = None if whole else self._mask_of(self.training, row, self.inference, [m.row], m.bases)
            scale = self._scale(row, m.row)
            again = self._roundings_after(m, row)
            first = Change(unround=frozenset(map(base_format, again)), round=(dtype, mode or "rne"), scale=scale, mask=mask)
            changes.by_read.append((m, read, first))
            for event in again:
                narrow, _, how = event.partition(MODE_SEPARATOR)
                changes.by_read.append((m, read, Change(round=(narrow, how or "rne"), scale=scale, mask=mask)))

    def _roundings_after(self, m: MovedRead, row: int) -> list[str]:
        """Roundings that inference's read has been through after the moved one, and training's too: FP8 after BF16. The
        moved one comes before them."""
        events = list(self.inference.events(m.row))
        own = set(map(base_format, self.training.events(row)))
        return [e for e in events[events.index(m.event) + 1:] if base_format(e) in own] if m.event in events else []

    def _scale(self, training_row: int, inference_row: int) -> float:
        """Power of two by which inference's read is training's: values are paired up to it, small formats are not."""
        own, other = (np.median(np.abs(v[np.isfinite(v) & (v != 0)])) if (np.isfinite(v) & (v != 0)).any() else 1.0 for v in (
            self.skeletons[id(s)].read(s.operand(r), (s.consumer[r], s.slot[r]))
            for s, r in ((self.training, training_row), (self.inference, inference_row))))
        exponent = np.log2(other / own)
        return float(2.0 ** np.rint(exponent)) if abs(exponent - np.rint(exponent)) < 1e-6 else 1.0

    def _other_mode(self, changes: Changes, m: MovedRead) -> None:
        events = [e for r in m.other_rows for e in self.inference.events(r) if base_format(e) == base_format(m.event) and e != m.event]
        dtype, _, mode = events[0].partition(MODE_SEPARATOR)
        if mode == "stochastic":
            changes.impossible[id(m)] = "stochastic rounding has no single answer"
            return
        read = (self.training.consumer[m.row], self.training.slot[m.row])
        changes.by_read.append((m, read, Change(unround=frozenset({dtype}), round=(dtype, mode or "rne"))))

    def _mask(self, side: Side, m: MovedRead) -> np.ndarray:
        return self._mask_of(side, m.row, self.inference, m.other_rows)

    def _formed_by(self, side: Side, m: MovedRead) -> np.ndarray:
        """Elements of a moved read that its bases form."""
        return np.isin(self.hashes(side, m.row), self._formed(side, m.bases))

    def _formed(self, side: Side, bases: tuple[int, ...]) -> np.ndarray:
        """Hashes of everything some nodes compute."""
        return np.unique(np.concatenate([element_hashes(self.skeletons[id(side)].flat(b)) for b in bases]))

    def _mask_of(self, side: Side, row: int, other: Side, other_rows: list[int], bases: tuple[int, ...] = ()) -> np.ndarray | None:
        """Elements of `row` that are among the elements of the other side's rows (of a read of several values, of those
        that `bases` form); None if all are."""
        mine = self.hashes(side, row)
        theirs = np.unique(np.concatenate([self.hashes(other, r).reshape(-1) for r in other_rows]))
        if bases and any(set(other.bases(r)) - set(bases) for r in other_rows):
            theirs = theirs[np.isin(theirs, self._formed(other, bases))]
        inside = np.isin(mine, theirs) | (mine == 0)
        return None if inside.all() else inside

    def hashes(self, side: Side, row: int) -> np.ndarray:
        """Element hashes of everything a row's operand reads, in its shape."""
        operand = side.operand(row)
        values = self.skeletons[id(side)].read(operand, (side.consumer[row], side.slot[row]))
        return element_hashes(values).reshape(operand.shape)
