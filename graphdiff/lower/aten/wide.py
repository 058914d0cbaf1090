"""float64 in eager code: programs are evaluated in float32, so what float32 cannot hold is refused, and the rest named.

The op is run again on its own inputs in float32. Where that gives another number than float64 did (a difference of large
numbers, a sum that float32 stalls in), the program would too. Sines and cosines are only named: models make rotary
tables in float64, and what float32 loses there is the last place of the angle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

from graphdiff.lower.aten.movement import moves

if TYPE_CHECKING:
    from graphdiff.lower.aten.recorder import Recorder

_NARROWER = {torch.float64: torch.float32, torch.complex128: torch.complex64}
APART = 2.0**-10
"""Of a result's largest number: what BF16 could still see."""


def check_float64(r: Recorder, func: Any, args: tuple, kwargs: dict, results: list[torch.Tensor]) -> None:
    """Raises GraphdiffError if a float64 op's result is another number in float32; else leaves a note that names it."""
    if func.namespace != "aten" or moves(func) or not any(t.dtype in _NARROWER for t in results):
        return
    r.remarks.wide.append(str(func))
    if func._overloadpacket.__name__.rstrip("_") in ("sin", "cos") or "generator" in kwargs:
        return
    narrow = lambda x: (r.read(x).to(_NARROWER.get(x.dtype, x.dtype), copy=True) if isinstance(x, torch.Tensor)  # noqa: E731
                        else _NARROWER.get(x, x) if isinstance(x, torch.dtype) else x)
    again = func(*tree_map(narrow, args), **tree_map(narrow, kwargs))
    again = again if isinstance(again, (tuple, list)) else [again]
    for real, t in zip(results, again):
        wide = t.to(real.dtype)
        both = torch.isfinite(wide) & torch.isfinite(real)
        same = (wide == real) | (wide.isnan() & real.isnan())
        largest = real[both].abs().max() if bool(both.any()) else 0.0
        if not bool((same | both & ((wide - real).abs() <= APART * largest)).all()):
            raise r.refused("its float64 result is another number in float32, in which programs are evaluated")
