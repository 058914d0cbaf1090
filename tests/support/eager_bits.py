"""What every op of a running eager model did against its rule: each op is lowered alone, given the numbers it really got."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from cpp_bits import differing, torch_arithmetic
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graphdiff.lower.aten import Recorder, is_float
from graphdiff.lower.aten.movement import EMPTY
from graphdiff.program import Builder, Evaluation, Options

ANCHORS = ("mm", "attention")


@dataclass(frozen=True)
class OpBits:
    """One float result (or argument written to) of one call: elements, how many differ, the largest difference in ulp.

    computes: its rule has an op that computes, so that the numbers are more than the arguments', moved. anchor: that op
    is a matmul or attention, whose sums are in an order of their own.
    """

    op: str
    dtype: str
    elements: int
    differing: int
    worst: float
    computes: bool
    anchor: bool


class EachOp(TorchDispatchMode):
    """Active around a model's forward. `found` grows; `anchors` are the results of matmuls and attention, in order."""

    def __init__(self, rules: dict[str, Callable[..., None]]) -> None:
        super().__init__()
        self.rules = rules
        self.found: list[OpBits] = []
        self.anchors: list[np.ndarray] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), torch._C.DispatchKey.CompositeImplicitAutograd):
            with self:  # in inference mode composite ops come whole
                return func.decompose(*args, **kwargs)
        recorder = Recorder(Builder())
        recorder.custom_rules = self.rules
        given = [t for t in tree_leaves((args, kwargs)) if is_float(t) and t.numel()]
        for i, t in enumerate(given):
            recorder.announce(t, f"argument {i}", dynamic=True, keep=True)
        out = recorder.__torch_dispatch__(func, types, args, kwargs)
        assert not recorder.remarks.opaque, f"{func} is opaque: nothing is predicted"
        self._compare(recorder, func, args, kwargs, out)
        return out

    def _compare(self, recorder: Recorder, func: Any, args: tuple, kwargs: dict, out: Any) -> None:
        """Results in memory of their own, and float arguments that the schema says are written."""
        written = [t for a, v in zip(func._schema.arguments, args) if a.alias_info is not None and a.alias_info.is_write
                   for t in tree_leaves(v) if is_float(t)]
        written += [t for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write
                    for t in tree_leaves(kwargs.get(a.name)) if is_float(t)]
        memory = {t.untyped_storage().data_ptr() for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        fresh = [t for t in tree_leaves(out) if is_float(t) and t.numel() and t.untyped_storage().data_ptr() not in memory]
        ops = {n.op for n in recorder.builder.program.nodes} - {"leaf", "const", "round"}
        evaluation = Evaluation(recorder.builder.program, recorder.builder.leaf_bits, Options(arithmetic=torch_arithmetic()))
        if func._overloadpacket.__name__ in EMPTY:
            return  # memory that nobody has written
        for t in [*written, *fresh]:
            predicted = evaluation.read(recorder.builder.operand(recorder.elements(t))).astype(np.float32)
            real, dtype = t.detach().float().numpy(), str(t.dtype).removeprefix("torch.")
            anchor = bool(ops & set(ANCHORS))
            if anchor:
                self.anchors.append(real.copy())
            computes = bool(ops) or "round" in {n.op for n in recorder.builder.program.nodes}
            self.found.append(OpBits(f"{func.namespace}.{func._overloadpacket.__name__}", dtype, t.numel(),
                                     *differing(predicted, real, dtype)[:2], computes, anchor))
