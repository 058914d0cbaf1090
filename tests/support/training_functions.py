"""Functions whose compiled forward and backward run on this machine, and what their kernels did against their programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from cpp_bits import Bits, differing, kernel_bits, torch_arithmetic
from cpp_functions import EPS, add_norm, gather, rotate, softmax, swiglu
from function_cases import CASES

ROWS, WIDTH, WIDE = 64, 256, 512


def norm(x, w):
    f = x.float()
    return w * (f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + EPS)).to(x.dtype)


def layer_norm(x, w, b):
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), w, b)


def gelu(x):
    return torch.nn.functional.gelu(x)


def mlp(x, gate, up, down):
    return swiglu(x @ gate.t(), x @ up.t()) @ down.t()


def block(x, r, w, gate, up, down):
    y, h = add_norm(x, r, w)
    return mlp(y, gate, up, down) + h


def saved(x, a, b):
    """The difference is saved for the backward, and used again."""
    return torch.nn.functional.silu(x @ a - x @ b)


def cross_entropy(x, ids):
    return torch.nn.functional.cross_entropy(x.float(), ids)


FUNCTIONS = {
    "norm": (norm, [(ROWS, WIDTH), (WIDTH,)]),
    "add_norm": (add_norm, [(ROWS, WIDTH), (ROWS, WIDTH), (WIDTH,)]),
    "swiglu": (swiglu, [(ROWS, WIDTH), (ROWS, WIDTH)]),
    "rotate": (rotate, [(ROWS, 4, 64), (ROWS, 1, 64), (ROWS, 1, 64)]),
    "softmax": (softmax, [(ROWS, WIDTH)]),
    "layer_norm": (layer_norm, [(ROWS, WIDTH), (WIDTH,), (WIDTH,)]),
    "gelu": (gelu, [(ROWS, WIDTH)]),
    "gather": (gather, [(100, WIDTH), (ROWS, WIDTH), 100]),
    "cross_entropy": (cross_entropy, [(ROWS, WIDTH), WIDTH]),
    "saved": (saved, [(ROWS, 8), (8, WIDTH), (8, WIDTH)]),
    "mlp": (mlp, [(ROWS, WIDTH), (WIDE, WIDTH), (WIDE, WIDTH), (WIDTH, WIDE)]),
    "block": (block, [(ROWS, WIDTH), (ROWS, WIDTH), (WIDTH,), (WIDE, WIDTH), (WIDE, WIDTH), (WIDTH, WIDE)]),
    "softmax_big": (CASES["softmax_big"][0], [(8, 8192)]),
    "layer_norm8192": (CASES["layer_norm8192"][0], [(8, 8192), (8192,), (8192,)]),
    "addrms8192": (CASES["addrms8192"][0], [(8, 8192), (8, 8192), (8192,)]),
    "index_put": (CASES["index_put"][0], [(100, WIDTH), (ROWS, WIDTH), 100]),
    "repeat_kv": (CASES["repeat_kv"][0], [(2, 4, 8, 16)]),
    "chunk_swiglu": (CASES["chunk_swiglu"][0], [(ROWS, 2 * WIDTH)]),
    "std": (CASES["std"][0], [(ROWS, WIDTH)]),
    "prod": (CASES["prod"][0], [(ROWS, 16)]),
}
"""By name: the function, and the sizes of its bfloat16 inputs (a number: so many classes, of which ROWS are drawn)."""


def arguments(name: str, seed: int = 7) -> tuple[Any, ...]:
    g = torch.Generator().manual_seed(seed)
    made = [torch.randint(0, s, (ROWS,), generator=g) if isinstance(s, int) else torch.randn(*s, generator=g).bfloat16() for s in FUNCTIONS[name][1]]
    return tuple(t.requires_grad_() if t.is_floating_point() else t for t in made)


def run(name: str) -> Any:
    """Compiled, and run once forward and once backward. One thread: several add to one element in any order."""
    from graphdiff.capture.inductor.native import native_code_for_function

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return native_code_for_function(FUNCTIONS[name][0], arguments(name), run=True, training=True)
    finally:
        torch.set_num_threads(threads)


def bits_of_kernels(code: Any, runs: list[Any]) -> list[Bits]:
    assert [k.name for k in code.launches] == [r.name for r in runs], "one run of every launch, in order"
    return [b for kernel, done in zip(code.launches, runs) for b in kernel_bits(kernel, done.before, done.after)]


def bits_of_program(name: str, native: Any) -> list[Bits]:
    """Results and gradients of forward and backward as one program, given the gradients that the real backward was given."""
    from graphdiff.capture.compiled import made_up_gradients, program_from_native_training
    from graphdiff.capture.function import Function
    from graphdiff.lower.aten import raw_bits
    from graphdiff.lower.inductor import Input
    from graphdiff.program import Evaluation, Options

    args = arguments(name)
    function = Function(FUNCTIONS[name][0], args, tuple(f"x{i}" for i in range(len(args))), "functions.py", name)
    wanted = made_up_gradients(native.backward.code.text, native.backward.inputs)  # for their layout, which autograd sees to
    tangents = [Input(w.name, raw_bits(t.contiguous()), _format(t), w.strides) for w, t in zip(wanted, native.tangents, strict=True)]
    program, bits = program_from_native_training(native, function, tangents)
    evaluation = Evaluation(program, bits, Options(arithmetic=torch_arithmetic()))
    real = [*native.results, *(g for g in native.gradients if g is not None)]
    return [Bits(o.name, i, _format(r), r.numel(), *differing(evaluation.output(i).astype(np.float32), r.float().numpy(), _format(r)))
            for i, (o, r) in enumerate(zip(program.outputs, real, strict=True))]


def _format(t: Any) -> str:
    return str(t.dtype).removeprefix("torch.")
