"""Small functions whose C++ kernels are fixtures (fixtures/inductor_cpp), and the command that makes them:

    python tests/support/cpp_functions.py fixtures/inductor_cpp

compiles each for this machine, runs it, and keeps the kernels' loop bodies with the bits that went in and came out.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

EPS = 1e-6


def inputs(*shapes: tuple[int, ...]) -> tuple[Any, ...]:
    import torch

    g = torch.Generator().manual_seed(7)
    return tuple(torch.randn(*s, generator=g).to(torch.bfloat16) for s in shapes)


def add_norm(x, r, w):
    """HF's form: the norm reads the stored sum, in a later loop."""
    import torch

    h = x + r
    f = h.float()
    return w * (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + EPS)).to(h.dtype), h


def swiglu(g, u):
    import torch

    return torch.nn.functional.silu(g) * u


def register(a, b, c):
    """A product that is stored and used again: from the register, unrounded."""
    t = a * b
    return t, t * c


def round_trip(a, b, c):
    """An explicit cast that is not emitted."""
    import torch

    return ((a.float() * b.float()).to(torch.bfloat16).float() * c.float()).to(torch.bfloat16)


def kept_reduction(x, w):
    """A reduction's result is stored as bfloat16 and read after its loop."""
    import torch

    scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + EPS).to(torch.bfloat16)
    return x * scale * w, scale


def softmax(x):
    import torch

    return torch.softmax(x, -1)


def rotate(x, cos, sin):
    import torch

    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def gather(table, x, ids):
    return table[ids] + x


FUNCTIONS = {
    "add_norm": (add_norm, ((8, 64), (8, 64), (64,))), "swiglu": (swiglu, ((8, 64), (8, 64))),
    "register": (register, ((8, 32), (8, 32), (8, 32))), "round_trip": (round_trip, ((8, 32), (8, 32), (8, 32))),
    "kept_reduction": (kept_reduction, ((8, 64), (64,))), "softmax": (softmax, ((8, 64),)),
    "rotate": (rotate, ((8, 2, 32), (8, 1, 32), (8, 1, 32))), "gather": (gather, ((16, 32), (8, 32))),
}


def packed(t: Any) -> dict[str, Any]:
    from graphdiff.lower.aten import is_float, raw_bits

    raw = np.ascontiguousarray(raw_bits(t.contiguous()) if is_float(t) else t.numpy())
    return {"dtype": str(t.dtype).removeprefix("torch."), "shape": list(t.shape), "strides": list(t.stride()), "storage": str(raw.dtype),
            "data": base64.b64encode(raw.tobytes()).decode()}


def unpacked(kept: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(kept["data"]), kept["storage"]).reshape(kept["shape"])


def main(folder: str) -> None:
    import torch

    from graphdiff.capture.inductor.native import native_code_for_function

    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, (function, shapes) in FUNCTIONS.items():
        args = inputs(*shapes)
        if name == "gather":
            args = (*args, torch.tensor([3, 1, 4, 1, 5, 9, 2, 6]))
        native = native_code_for_function(function, args, run=True)
        kept = {
            "code": native.code, "inputs": [packed(i.value) for i in native.inputs],
            "outputs": [o.position for o in native.outputs], "results": [packed(t) for t in native.results],
        }
        (Path(folder) / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=1))


if __name__ == "__main__":
    main(sys.argv[1])
