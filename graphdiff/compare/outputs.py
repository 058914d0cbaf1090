"""Are the two sides the same computation? Told by their outputs, element by element, in the places where they stand.

Rounding in the same places says nothing of two programs that compute different numbers. An output is the same if its
unrounded FP64 numbers are: noise (the order of a sum, FMA) is six digits smaller than any other computation there. Two
sets of unrounded numbers count, and either will do: those of the probe (dequantised, which knows that a table in BF16 is
the other side's, rounded) and those of the numbers that the capture holds (which know that equal leaves of unlike formats
are equal).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from graphdiff.compare.overlap import held_together
from graphdiff.compare.side import Side
from graphdiff.compare.transplant import Bench
from graphdiff.errors import Damage, GraphdiffError
from graphdiff.program import Evaluation, Options

NOISE = 1e-6
"""Unrounded numbers that differ by less, of themselves and of the median of the output's distinct numbers, are the same: constants kept in
float32 differ by a tenth of it."""
FLIPPED = 0.05
"""At most this share of an output's elements may stem from another choice (a tie in top-k), if their bits are equal."""
HELD = 0.9
"""Where nothing can be evaluated: the share of each side's sketch that the other must hold."""
BEHIND_OPAQUE = 0.05
"""Behind an op that cannot be read, numbers are those of the real run: the error, of the output's size, that roundings
make at most."""
UNEXPLAINED = 0.01
"""Share of elements whose bits may differ in float64 arithmetic, both sides under one schedule, before it needs a reason."""

MOST_PAIRS = 1024
"""Outputs in unlike places that are tried with each other."""

How = Literal["", "shape", "order", "numbers", "bits", "opaque"]


@dataclass
class OutputCheck:
    """One output of both sides (`inference` and `training` are positions), or of one side alone (the other is None).

    same: None where it cannot be judged. `differing` of `elements` are other numbers, `how` says in which way: another
    `shape`, the same numbers in another `order`, other `numbers`, or `bits` that differ although the numbers agree.
    """

    inference: int | None
    training: int | None
    same: bool | None
    elements: int = 0
    differing: int = 0
    how: How = ""


def check_outputs(bench: Bench) -> list[OutputCheck]:
    """Outputs paired by place, else by their numbers; what then is left on both sides is another computation."""
    return bench.once(("outputs",), lambda: _check(bench))


def checked_pair(bench: Bench, training: int, inference: int) -> OutputCheck | None:
    """The check of these two outputs, if they were paired."""
    return next((c for c in check_outputs(bench) if (c.training, c.inference) == (training, inference)), None)


def _check(bench: Bench) -> list[OutputCheck]:
    mine, theirs = (list(range(len(s.program.outputs))) for s in (bench.training, bench.inference))
    found: list[OutputCheck] = []
    for candidates in (_in_place, _elsewhere):
        for here, there in candidates(mine, theirs):
            if here in mine and there in theirs and _size(bench.training, here) == _size(bench.inference, there):
                check = _pair(bench, here, there)
                if check.same:
                    found.append(check)
                    mine.remove(here)
                    theirs.remove(there)
    found.sort(key=lambda c: c.training)
    for here, there in zip(list(mine), list(theirs)):
        found.append(_pair(bench, here, there))
        mine.remove(here)
        theirs.remove(there)
    found += [OutputCheck(None, here, None) for here in mine] + [OutputCheck(there, None, None) for there in theirs]
    return found


def _in_place(mine: list[int], theirs: list[int]) -> Iterator[tuple[int, int]]:
    yield from [(i, i) for i in sorted({*mine} & {*theirs})]


def _elsewhere(mine: list[int], theirs: list[int]) -> Iterator[tuple[int, int]]:
    """What is left, each with each, if that is not without end (hundreds of gradients)."""
    if len(mine) * len(theirs) <= MOST_PAIRS:
        yield from [(i, j) for i in mine for j in theirs if i != j]


def _size(side: Side, output: int) -> int:
    return int(np.prod(side.program.outputs[output].operand.shape, dtype=np.int64))


def _pair(bench: Bench, here: int, there: int) -> OutputCheck:
    elements, others = _size(bench.training, here), _size(bench.inference, there)
    if elements != others:
        return OutputCheck(there, here, False, elements, abs(elements - others), "shape")
    return bench.once(("output", here, there), lambda: _compared(bench, here, there, elements))


def _compared(bench: Bench, here: int, there: int, elements: int) -> OutputCheck:
    if elements == 0:
        return OutputCheck(there, here, True)
    try:
        probed = [_read(bench.skeletons[id(s)], o) for s, o in ((bench.training, here), (bench.inference, there))]
        differ = ~_close(*probed)
        if not differ.any():
            return OutputCheck(there, here, True, elements)
        held = [_read(_unrounded(bench, s), o) for s, o in ((bench.training, here), (bench.inference, there))]
        differ &= ~_close(*held)
        if not differ.any():
            return OutputCheck(there, here, True, elements)
        bits = [_read(bench.transplanted(np.float32), here), _read(bench.reference(np.float32), there)]
    except Damage:
        raise
    except GraphdiffError:
        return _by_sketch(bench, here, there, elements)
    apart = differ & ~((bits[0] == bits[1]) | (np.isnan(bits[0]) & np.isnan(bits[1])))
    if not apart.any() and differ.mean() <= FLIPPED:
        return OutputCheck(there, here, True, elements)
    if _is_behind_opaque(bench.training, here) or _is_behind_opaque(bench.inference, there):
        if _error(*held) <= BEHIND_OPAQUE:
            return OutputCheck(there, here, None, elements, int(apart.sum()), "opaque")
    moved = any(_close(*map(np.sort, numbers)).all() for numbers in (probed, held))
    return OutputCheck(there, here, False, elements, int(differ.sum()), "order" if moved else "numbers")


def _by_sketch(bench: Bench, here: int, there: int, elements: int) -> OutputCheck:
    """What cannot be evaluated (numbers that the capture does not hold) is judged by what the probe kept of it."""
    own = [s for r in bench.training.rows_of.get(-1 - here, ()) if (s := bench.training.sketch[r]) >= 0]
    other = [s for r in bench.inference.rows_of.get(-1 - there, ()) if (s := bench.inference.sketch[r]) >= 0]
    if not own or not other:
        return OutputCheck(there, here, None, elements)
    shares = [held_together(bench.training, s, bench.inference, other) for s in own]
    shares += [held_together(bench.inference, s, bench.training, own) for s in other]
    if min(shares) >= HELD:
        return OutputCheck(there, here, True, elements)
    opaque = _is_behind_opaque(bench.training, here) or _is_behind_opaque(bench.inference, there)
    return OutputCheck(there, here, None if opaque else False, elements, round(elements * (1 - min(shares))), "opaque" if opaque else "numbers")


def unexplained(bench: Bench) -> OutputCheck | None:
    """The first output whose numbers are the same, but whose bits differ in both arithmetics under one schedule: a
    rounding was overlooked, or is of no kind that is compared."""
    try:
        own, other = bench.transplanted(np.float64), bench.reference(np.float64)
        for check in check_outputs(bench):
            if check.same and check.elements:
                a, b = _read(own, check.training).astype(np.float32), _read(other, check.inference).astype(np.float32)
                # What is stored in float32 differs in a last place by constants alone.
                differ = ~_close(a.astype(np.float64), b.astype(np.float64))
                if differ.sum() > max(1, UNEXPLAINED * differ.size):
                    return OutputCheck(check.inference, check.training, None, check.elements, int(differ.sum()), "bits")
    except Damage:
        raise
    except GraphdiffError:  # the capture lacks the numbers to evaluate: check_outputs judged by what the probe kept, and said so
        return None
    return None


def _read(evaluation: Evaluation, output: int) -> np.ndarray:
    return np.asarray(evaluation.output(output)).reshape(-1)


def _unrounded(bench: Bench, side: Side) -> Evaluation:
    """FP64, no rounding, on the numbers that the capture holds."""
    return bench.once(("unrounded", id(side)), lambda: Evaluation(side.program, side.bits, Options(
        precision=np.float64, rounding=False, pins=dict(side.data.pins))))


def _close(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(a), np.abs(b))
        counted = np.unique(size[np.isfinite(size) & (size != 0)])  # a mask's constant counts once
        least = float(np.median(counted)) if counted.size else 0.0
        near = np.isfinite(size) & (np.abs(a - b) <= NOISE * (size + least))
        return near | (a == b) | (np.isnan(a) & np.isnan(b))


def _error(a: np.ndarray, b: np.ndarray) -> float:
    """Root mean square of the difference, of the numbers' own."""
    both = np.isfinite(a) & np.isfinite(b)
    if not both.all() or not a.size:
        return float("inf")
    size = float(np.sqrt(np.mean(b * b)))
    return float(np.sqrt(np.mean((a - b) ** 2))) / size if size else float("inf")


def _is_behind_opaque(side: Side, output: int) -> bool:
    stack, seen = list(side.program.outputs[output].operand.nodes), set()
    while stack:
        n = stack.pop()
        if n in seen or n in side.data.pins:
            continue
        seen.add(n)
        if side.program.nodes[n].kind == "opaque":
            return True
        stack.extend(m for o in side.program.nodes[n].operands for m in o.nodes)
    return False
