"""Hardware proof: kernels of a capture compiled to PTX and SASS with no GPU, and the program held against them."""

from graphdiff.hardware.check import check_capture

__all__ = ["check_capture"]
