"""Scalars that an op takes in its tensors' format: torch's type promotion, where it rounds.

A 0-dimensional tensor does not widen the result (`result_type`, c10/core/ScalarType.h promoteTypes, ATen/TensorIterator.cpp
compute_common_dtype): a float32 one beside BF16 tensors is cast to BF16 as it is loaded (native/cuda/Loops.cuh,
needs_dynamic_casting) if it lies on the device. One on the CPU is taken in float32, as numbers are
(opmath_gpu_kernel_with_scalars), but for the numbers of pow, fmod and remainder, which are taken in the tensor's format
(native/cuda/PowKernel.cu `exp_scalar.to<scalar_t>()`, BinaryRemainderKernel.cu).
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

from graphdiff.program import Elements
from graphdiff.program.dtypes import contains, round_to

if TYPE_CHECKING:
    from graphdiff.lower.aten.recorder import Recorder

PROMOTING = frozenset("""
    add sub rsub mul div true_divide divide pow float_power maximum minimum fmax fmin atan2 copysign fmod remainder hypot
    logaddexp logaddexp2 addcmul addcdiv clamp clamp_min clamp_max clip xlogy special_xlog1py floor_divide
""".split())


def narrowed(r: Recorder, base: str, args: tuple, kwargs: dict) -> dict[int, torch.dtype]:
    """Of an op's tensors those that are cast to a narrower format as they are read: id() -> the format."""
    if base not in PROMOTING:
        return {}
    tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.is_floating_point()]
    wide = [t.dtype for t in tensors if t.dim()]
    if not wide:
        return {}
    common = reduce(torch.promote_types, wide)
    return {id(t): common for t in tensors if not t.dim() and r.on_device(t) and not contains(_name(common), _name(t.dtype))}


def in_format(r: Recorder, number: Any, like: torch.Tensor) -> Elements | float:
    """A number that a kernel takes in the format of `like`; a tensor or a number that the format holds is as it is."""
    if isinstance(number, torch.Tensor):
        return r.of(number)
    value, name = float(number), _name(like.dtype)
    if np.array_equal(round_to(np.float32(value)[None], name), np.float32(value)[None], equal_nan=True):
        return value
    return r.builder.round(r.builder.const(value), name)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
