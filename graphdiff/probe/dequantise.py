"""Generic numbers for low-precision leaves, and the FP64 skeleton evaluated on them.

BF16 leaves hold few distinct numbers, and sums of them collide. Every element of a low-precision leaf is multiplied by
1 + d(its bits), |d| < 2**-8 fixed and pseudo-random: generic numbers, and both sides still agree without knowing which
leaf is which, merged or sliced. Zeros and infinities stay.

The static rule (model captures): what depends on no token is evaluated for real; where it meets something dynamic, both
sides read its BF16 bits, dequantised, whether or not that side rounds it. A BF16 table and an FP32 one then meet, and
whether each is rounded is recorded apart (states.py).
"""

from __future__ import annotations

import numpy as np

from graphdiff.program import Evaluation, Operand, Options, Program
from graphdiff.program.dtypes import LOW, decode, decode_table, encode_bfloat16
from graphdiff.program.evaluate import Read

_TABLES: dict[str, np.ndarray] = {}


def generic(numbers: np.ndarray) -> np.ndarray:
    """float64 numbers times 1 + d(their bits)."""
    v = np.ascontiguousarray(numbers, np.float64).reshape(np.shape(numbers))
    b = v.view(np.int64)
    with np.errstate(over="ignore"):
        h = (b * np.int64(-7046029254386353131)) ^ (b >> np.int64(29))
        h = h * np.int64(-4417276706812531889)
    d = ((h >> np.int64(33)) & np.int64(0xFFFFF)).astype(np.float64) / 2**20 - 0.5
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(v) & (v != 0), v * (1 + d * 2.0**-7), v)


def generic_table(dtype: str) -> np.ndarray:
    """float64 [2**bits] of dequantised numbers by bit pattern."""
    if dtype not in _TABLES:
        _TABLES[dtype] = generic(decode_table(dtype))
    return _TABLES[dtype]


class Skeleton(Evaluation):
    """FP64, no rounding, dequantised leaves. `substitutes` gives some leaves other numbers (see compare/leaves.py)."""

    def __init__(self, program: Program, bits: dict[int, np.ndarray], *, static_rule: bool,
                 substitutes: dict[int, np.ndarray] | None = None, pins: dict[int, np.ndarray] | None = None) -> None:
        super().__init__(program, bits, Options(precision=np.float64, rounding=False, pins=pins or {}))
        self.substitutes = substitutes or {}
        self.static_rule = static_rule
        self.real = Evaluation(program, bits)
        self._probed: dict[int, np.ndarray] = {}

    def leaf(self, n: int) -> np.ndarray:
        node = self.program.nodes[n]
        raw = self._raw(n)
        if node.op != "leaf":
            return raw.astype(np.float64)
        return self.leaf_chunk(raw, node.dtype) if node.size > 1 else decode(raw, node.dtype).astype(np.float64)

    def leaf_chunk(self, raw: np.ndarray, dtype: str) -> np.ndarray:
        if dtype in LOW:
            return generic_table(dtype)[raw]
        if self.static_rule:
            return generic_table("bfloat16")[encode_bfloat16(raw)]
        return raw.astype(np.float64)

    def _compute(self, n: int) -> np.ndarray:
        if n in self.substitutes:
            return self.substitutes[n].reshape(-1)
        if self._is_static(n) and self.program.nodes[n].op != "const":
            return self.real.flat(n).astype(np.float64)
        return super()._compute(n)

    def read(self, operand: Operand, reader: Read | None = None) -> np.ndarray:
        if not self.static_rule or reader is None or reader[0] < 0 or not self.program.nodes[reader[0]].dynamic:
            return super().read(operand, reader)
        if len(operand.nodes) == 1 and self._is_static(operand.nodes[0]) and self.program.nodes[operand.nodes[0]].op == "leaf" \
                and self.program.nodes[operand.nodes[0]].size > 1:
            raw = self.program.take(operand, self._raw)
            return self.leaf_chunk(raw, self.program.nodes[operand.nodes[0]].dtype)
        return self.program.take(operand, lambda m: self.probed(m) if self._is_static(m) else self.flat(m))

    def probed(self, n: int) -> np.ndarray:
        """A static node as a dynamic one reads it: through its BF16 bits; single numbers as they are."""
        if self.program.nodes[n].size == 1:
            return self.flat(n)
        if n not in self._probed:
            self._probed[n] = generic_table("bfloat16")[encode_bfloat16(self.real.flat(n))]
        return self._probed[n]

    def _needed(self, nodes):
        # Static ancestors are evaluated by `real`, and only where something reads them.
        if not self.static_rule:
            return super()._needed(nodes)
        stack, seen = [n for n in nodes if n not in self.values], set()
        while stack:
            n = stack.pop()
            if n in seen or n in self.values:
                continue
            seen.add(n)
            if not self._is_static(n) and n not in self.options.pins:
                stack.extend(m for o in self.program.nodes[n].operands for m in o.nodes if not self._is_static(m))
        return sorted(seen)

    def _is_static(self, n: int) -> bool:
        return self.static_rule and not self.program.nodes[n].dynamic
