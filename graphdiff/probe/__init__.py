"""FP64 numbers of every value on the probe, sketched; and the rounding state of every read (run.py is the face)."""

from graphdiff.probe.run import probe
from graphdiff.probe.types import ProbeData

__all__ = ["ProbeData", "probe"]
