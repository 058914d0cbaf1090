"""Sketches: the smallest hashes of a value's elements (bottom-k, compared as FracMinHash on the range both keep).

An element is hashed by the 36 leading bits of its FP64 mantissa, without sign and exponent: rounding commutes with
negation and with scaling by a power of two, and FP64 noise (1e-14) moves one element in a thousand to a neighbour.
Zeros and non-finite elements say nothing and are left out.
"""

from __future__ import annotations

import numpy as np

KEEP = 256
ALL = np.uint64(2**64 - 1)
_BITS = 36


def element_hashes(values: np.ndarray) -> np.ndarray:
    """uint64 hash per element, in order; 0 for elements that are left out."""
    v = np.abs(np.asarray(values, np.float64).reshape(-1))
    ok = np.isfinite(v) & (v != 0)
    mantissa, _ = np.frexp(np.where(ok, v, 1.0))
    q = np.rint(mantissa * (1 << (_BITS + 1))).astype(np.uint64)
    q[q == np.uint64(1 << (_BITS + 1))] = np.uint64(1 << _BITS)
    with np.errstate(over="ignore"):
        h = q * np.uint64(0x9E3779B97F4A7C15)
        h ^= h >> np.uint64(32)
        h *= np.uint64(0xD6E8FEB86659FD93)
        h ^= h >> np.uint64(29)
        h |= np.uint64(1)
    h[~ok] = 0
    return h


def sketch(values: np.ndarray, keep: int = KEEP) -> tuple[np.ndarray, np.uint64]:
    """(sorted distinct hashes, at most `keep`; the threshold up to which all hashes are kept)."""
    h = element_hashes(values)
    h = h[h != 0]
    if h.size > 64 * keep:
        likely = h[h < np.uint64(int(float(2**64) * min(1.0, 8 * keep / h.size)))]
        distinct = np.unique(likely)
        if distinct.size >= keep:
            return distinct[:keep].copy(), distinct[keep - 1]
    distinct = np.unique(h)
    if distinct.size > keep:
        return distinct[:keep].copy(), distinct[keep - 1]
    return distinct, ALL


class SketchTable:
    """Sketches by number, equal ones stored once."""

    def __init__(self) -> None:
        self.sketches: list[tuple[np.ndarray, np.uint64]] = []
        self._known: dict[bytes, int] = {}

    def add(self, values: np.ndarray) -> int:
        """Number of the sketch of these elements; -1 if none of them can be hashed."""
        hashes, threshold = sketch(values)
        if hashes.size == 0:
            return -1
        key = hashes.tobytes() + threshold.tobytes()
        if key not in self._known:
            self._known[key] = len(self.sketches)
            self.sketches.append((hashes, threshold))
        return self._known[key]

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """hashes, offsets, thresholds as ProbeData holds them."""
        sizes = [h.size for h, _ in self.sketches]
        offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        hashes = np.concatenate([h for h, _ in self.sketches]) if self.sketches else np.zeros(0, np.uint64)
        return hashes.astype(np.uint64), offsets, np.array([t for _, t in self.sketches], np.uint64)
