"""What the probe knows about a program: sketches of its values and the state in which each read takes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass
class ProbeData:
    hashes: np.ndarray
    """uint64, all sketches concatenated."""
    offsets: np.ndarray
    """int64 [n_sketches + 1]."""
    thresholds: np.ndarray
    """uint64 [n_sketches]: hashes up to this one are all kept."""
    value_sketch: np.ndarray
    """int32 [n_nodes], -1: none."""
    value_state: np.ndarray
    """int32 [n_nodes], index into states; -1 where elements differ."""
    exact_slot: np.ndarray
    """int8 [n_nodes]: operand looked through for arithmetic that is exact by its numbers, or -1."""
    live: np.ndarray
    """int64 [n_nodes]: live elements."""
    reads: dict[str, np.ndarray]
    """Equal lengths: consumer (int32; -1 - i: output i), slot, sketch, state (int32), count, total (int64), static (int8)."""
    states: list[tuple[tuple[str, ...], tuple[str, ...]]]
    """(formats it is representable in, rounding events in order)."""
    pins: dict[int, np.ndarray]
    """float32 anchor values by node id."""
