"""One read of several values (a cat, a stack, slices written into one tensor): which of them a rounding in it is of.

A row holds the elements of one operand that are in one rounding state, whoever formed them. A value has the rounding there
if a rounding stands between it and the read, and if some of the row's elements are its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdiff.compare.overlap import members
from graphdiff.compare.side import Side, base_format
from graphdiff.probe.liveness import operand_live


@dataclass
class Part:
    """What one value adds to a row: the sampled hashes that are its own, and their share of the row's."""

    base: int
    hashes: np.ndarray
    share: float


def carriers(side: Side, row: int, event: str) -> tuple[int, ...]:
    """The row's bases whose elements have been through `event`; all of them where that cannot be told."""
    bases = side.bases(row)
    if len(bases) < 2:
        return bases
    behind = _behind_roundings(side, row, base_format(event))
    return tuple(b for b in bases if b in behind or event in _events(side, b)) or bases


def _events(side: Side, node: int) -> tuple[str, ...]:
    """Roundings a whole node has been through: a table that is the rounding of something."""
    state = int(side.data.value_state[node])
    return side.data.states[state][1] if state >= 0 else ()


def _behind_roundings(side: Side, row: int, dtype: str) -> set[int]:
    """Bases that reach the row through a live round to `dtype` which changes bits."""
    found, seen, stack = set(), set(), [(n, False) for n in side.operand(row).nodes]
    while stack:
        n, passed = stack.pop()
        if (n, passed) in seen:
            continue
        seen.add((n, passed))
        node = side.program.nodes[n]
        if not side.is_exact(n):
            found |= {n} if passed else set()
            continue
        passed |= node.op == "round" and node.dtype == dtype and side.data.live[n] > 0 and side.changes_bits(n) is not False
        stack.extend((m, passed) for o in side.looked_through(n) for m in o.nodes)
    return found


def parts(side: Side, row: int, bases: tuple[int, ...], hashes: np.ndarray) -> list[Part]:
    """What each base adds to a row, by the hashes sampled of both (`hashes`: the row's, sorted).

    Numbers that two bases share are told to neither, unless one has no others: a value computed twice is both.
    """
    own = {b: side.hashes(side.value(b)) if side.value(b) >= 0 else np.zeros(0, np.uint64) for b in bases}
    held = {b: members(hashes, own[b]) for b in bases}
    times = sum(held.values(), np.zeros(hashes.size, int))
    found = []
    for b in bases:
        limit = side.data.thresholds[side.value(b)] if side.value(b) >= 0 else np.uint64(0)
        mine = held[b] & (times == 1)
        mine = (mine if mine.any() else held[b]) & (hashes <= limit)
        found.append(Part(b, hashes[mine], float(mine.sum()) / max(1, int((hashes <= limit).sum()))))
    return found


def elements_read(side: Side, row: int, base: int) -> int:
    """How many elements of a base reach the row, by layout: for a value too small to be in the row's sample."""
    masks: dict[int, np.ndarray] = {}
    _mark(side, masks, side.operand(row), None)
    while masks:
        n = max(masks)
        mask = masks.pop(n)
        if n <= base:
            return int(mask.sum()) if n == base else 0
        if mask.any() and side.is_exact(n):
            node = side.program.nodes[n]
            for o in side.looked_through(n):
                _mark(side, masks, o, operand_live(node, o, mask.reshape(node.shape)))
    return 0


def _mark(side: Side, masks: dict[int, np.ndarray], operand: Any, read: np.ndarray | None) -> None:
    for n in operand.nodes:
        masks.setdefault(n, np.zeros(side.program.nodes[n].size, bool))
    side.program.read_mask(operand, np.ones(operand.shape, bool) if read is None else np.asarray(read), masks)
