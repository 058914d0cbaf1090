"""The helpers that Inductor's kernels call, from torch itself: a kernel must be compiled with the ones it runs with."""

from torch._inductor.runtime import triton_helpers

__all__ = ["triton_helpers"]
