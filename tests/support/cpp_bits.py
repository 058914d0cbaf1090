"""What a C++ kernel did to its arguments against what its program says, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.pieces import float_leaf
from graphdiff.lower.inductor.values import IntStorage, Tensor
from graphdiff.lower.inductor_cpp import CppKernel
from graphdiff.lower.inductor_cpp.loop import launch
from graphdiff.program import Builder, Evaluation, Options
from graphdiff.program.ops import Arithmetic


@dataclass(frozen=True)
class Bits:
    """One argument that a kernel wrote: elements, how many differ, the largest difference in units of the last place, and
    in those of the largest element (sums of both signs cancel)."""

    kernel: str
    argument: int
    dtype: str
    elements: int
    differing: int
    worst: float
    of_largest: float = 0.0


def torch_arithmetic() -> Arithmetic:
    """Transcendentals and sums as torch computes them (its vectorised functions are those of the C++ backend)."""
    import torch

    def through(function: Any) -> Any:
        return lambda x: function(torch.from_numpy(np.array(x))).numpy()

    names = ("exp", "rsqrt", "sqrt", "sin", "cos", "tanh", "log", "erf", "reciprocal", "log1p", "expm1")
    return Arithmetic(unary={n: through(getattr(torch, n)) for n in names},
                      sum=lambda x, axes: torch.from_numpy(np.array(x)).sum(dim=axes).numpy())


def kernel_bits(kernel: CppKernel, before: list[Any], after: list[Any]) -> list[Bits]:
    """`before` and `after` are torch tensors and sizes, as KernelRun keeps them."""
    builder = Builder()
    memories: dict[int, Any] = {}
    arguments = [_memory(builder, a, i, memories) if hasattr(a, "stride") else int(a) for i, a in enumerate(before)]
    launch(Context(builder), kernel, arguments)
    evaluation = Evaluation(builder.program, builder.leaf_bits, Options(arithmetic=torch_arithmetic()))
    written = {kernel.arguments[n.args[0]] for loop in kernel.loops for body in loop.bodies for block in body.blocks.values()
               for n in block if n.op in ("store", "store_reduction") and n.args[0] in kernel.arguments}
    return [_compared(kernel.name, i, arguments[i], after[i], builder, evaluation) for i in sorted(written)]


def _memory(builder: Builder, t: Any, place: int, memories: dict[int, Any]) -> Tensor:
    """A view of its memory, which other arguments may share."""
    key = t.untyped_storage().data_ptr()
    if key not in memories:
        memories[key] = _storage(builder, t, place)
    return Tensor(memories[key], tuple(t.shape), tuple(t.stride()), t.storage_offset())


def _storage(builder: Builder, t: Any, place: int) -> Any:
    from graphdiff.lower.aten import raw_bits

    dtype = str(t.dtype).removeprefix("torch.")
    flat = t.as_strided((t.untyped_storage().nbytes() // t.element_size(),), (1,), 0)
    if not t.is_floating_point():
        return IntStorage.of(flat.numpy(), dtype, dynamic=False)
    return float_leaf(builder, f"argument {place}", raw_bits(flat).copy(), dtype).storage


def _compared(name: str, place: int, tensor: Tensor, real: Any, builder: Builder, evaluation: Evaluation) -> Bits:
    if isinstance(tensor.storage, IntStorage):
        wrong = int((tensor.storage.values[tensor.index()] != real.numpy()).sum())
        return Bits(name, place, tensor.dtype, real.numel(), wrong, float(wrong > 0))
    predicted = evaluation.read(builder.operand(tensor.read())).astype(np.float32)
    return Bits(name, place, tensor.dtype, real.numel(), *differing(predicted, real.float().numpy(), tensor.dtype))


def differing(predicted: np.ndarray, real: np.ndarray, dtype: str) -> tuple[int, float, float]:
    """Elements whose numbers differ (any NaN equals any NaN), and the largest difference in ulp of `dtype`: of the element
    and of the largest one."""
    wrong = (predicted != real) & ~(np.isnan(predicted) & np.isnan(real))
    if not wrong.any():
        return 0, 0.0, 0.0
    bits = {"bfloat16": 8, "float16": 11}.get(dtype, 24)
    off = np.abs(predicted[wrong] - real[wrong])
    return int(wrong.sum()), float((off / _ulp(np.abs(real[wrong]), bits)).max()), float(off.max() / _ulp(np.nanmax(np.abs(real)), bits))


def _ulp(size: np.ndarray, bits: int) -> np.ndarray:
    return np.exp2(np.floor(np.log2(np.maximum(size, 1e-30))) + 1 - bits)
