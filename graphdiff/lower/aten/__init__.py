"""Eager ATen, recorded below autograd while it runs (recorder.py is the face)."""

from graphdiff.lower.aten.position import Positions
from graphdiff.lower.aten.recorder import Recorder, is_float, raw_bits

__all__ = ["Positions", "Recorder", "is_float", "raw_bits"]
