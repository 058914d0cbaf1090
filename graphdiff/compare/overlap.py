"""How much of one value another holds: the share of sampled elements, for all pairs of sketches at once.

Why sketches and not graph isomorphism: two spellings of one computation share hardly any structure (merged QKV,
split halves, fused kernels, recomputation), but they compute the same numbers. Why all pairs at once: joining two
sorted hash lists is one vectorised pass; asking pair by pair was nine tenths of the prototype's time.
"""

from __future__ import annotations

import numpy as np

from graphdiff.compare.side import Side

SAME = 0.4
"""Two sketches are one value, or one is part of the other, if more than this share of either is in the other."""


class Overlap:
    """cover(a, b): share of side A's sketch a that side B's sketch b holds, on the hash range both keep.

    Sketches that only static operands have (weights) are left out of the join: the low-precision weights of all layers
    hold the same few numbers, and all pairs of them would be quadratic in depth. They are compared when asked for.
    """

    def __init__(self, a: Side, b: Side) -> None:
        self._sides = a, b
        self._b: list[np.ndarray] = [np.zeros(0, np.int64)] * a.sketches
        self._a: list[np.ndarray] = [np.zeros(0, np.int64)] * b.sketches
        self._cover: dict[tuple[int, int], tuple[float, float]] = {}
        self._weights = a.only_static, b.only_static
        self._join(a, b)

    def cover(self, a: int, b: int) -> float:
        return self._pair(a, b)[0]

    def cover_back(self, a: int, b: int) -> float:
        return self._pair(a, b)[1]

    def same(self, a: int, b: int) -> bool:
        return max(self._pair(a, b)) > SAME

    def partners(self, a: int) -> list[int]:
        """Sketches of B that are the same value as A's a."""
        if a < 0:
            return []
        if self._weights[0][a]:
            return [b for b in np.flatnonzero(self._weights[1]).tolist() if self.same(a, b)]
        return self._b[a].tolist()

    def partners_back(self, b: int) -> list[int]:
        if b < 0:
            return []
        if self._weights[1][b]:
            return [a for a in np.flatnonzero(self._weights[0]).tolist() if self.same(a, b)]
        return self._a[b].tolist()

    def _pair(self, a: int, b: int) -> tuple[float, float]:
        key = (a, b)
        if key not in self._cover and a >= 0 and b >= 0 and (self._weights[0][a] or self._weights[1][b]):
            one, two = self._sides
            limit = min(one.data.thresholds[a], two.data.thresholds[b])
            mine, theirs = (h[:np.searchsorted(h, limit, "right")] for h in (one.hashes(a), two.hashes(b)))
            common = int(members(mine, theirs).sum())
            shares = common / max(1, mine.size), common / max(1, theirs.size)
            self._cover[key] = shares if max(shares) > SAME else (0.0, 0.0)
        return self._cover.get(key, (0.0, 0.0))

    def _join(self, a: Side, b: Side) -> None:
        hashes_a, owner_a = a.joined
        hashes_b, owner_b = b.joined
        first = np.searchsorted(hashes_b, hashes_a, "left")
        times = np.searchsorted(hashes_b, hashes_a, "right") - first
        left = np.repeat(owner_a, times)
        ends = np.cumsum(times)
        within = np.arange(int(ends[-1]) if times.size else 0) - np.repeat(ends - times, times)
        right = owner_b[np.repeat(first, times) + within]
        if left.size == 0:
            return
        keys, common = np.unique(left.astype(np.int64) * b.sketches + right, return_counts=True)
        pa, pb = keys // b.sketches, keys % b.sketches
        limit = np.minimum(a.data.thresholds[pa], b.data.thresholds[pb])
        cover_a = common / np.maximum(1, _below(a, pa, limit))
        cover_b = common / np.maximum(1, _below(b, pb, limit))
        keep = np.maximum(cover_a, cover_b) > SAME
        pa, pb, cover_a, cover_b = pa[keep], pb[keep], cover_a[keep], cover_b[keep]
        self._cover = dict(zip(zip(pa.tolist(), pb.tolist()), zip(cover_a.tolist(), cover_b.tolist())))
        for lists, own, other in ((self._b, pa, pb), (self._a, pb, pa)):
            by = np.argsort(own, kind="stable")
            starts = np.flatnonzero(np.diff(own[by], prepend=-1))
            for s, e in zip(starts, np.append(starts[1:], by.size)):
                lists[int(own[by[s]])] = other[by[s:e]]


def held_together(own: Side, sketch: int, other: Side, sketches: list[int]) -> float:
    """Share of own's sketch that is in any of the other side's, on the hash range all keep."""
    limit = min(own.data.thresholds[sketch], *(other.data.thresholds[s] for s in sketches))
    mine = own.hashes(sketch)
    mine = mine[mine <= limit]
    held = np.zeros(mine.size, bool)
    for s in sketches:
        held |= members(mine, other.hashes(s))
    return float(held.mean()) if mine.size else 1.0


def members(hashes: np.ndarray, among: np.ndarray) -> np.ndarray:
    """np.isin for sorted `among`."""
    if among.size == 0:
        return np.zeros(hashes.size, bool)
    return among[np.minimum(np.searchsorted(among, hashes), among.size - 1)] == hashes


def _below(side: Side, sketches: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Number of hashes of each sketch up to a limit."""
    low, high = side.data.offsets[sketches], side.data.offsets[sketches + 1]
    start = low.copy()
    cut = np.flatnonzero(limits < side.data.thresholds[sketches])
    lower, upper, limits = low[cut], high[cut].copy(), limits[cut]
    while (open_ := lower < upper).any():  # all bisections at once
        middle = (lower + upper) // 2
        inside = open_ & (side.data.hashes[np.minimum(middle, side.data.hashes.size - 1)] <= limits)
        lower, upper = np.where(inside, middle + 1, lower), np.where(open_ & ~inside, middle, upper)
    result = high - start
    result[cut] = lower - start[cut]
    return result
