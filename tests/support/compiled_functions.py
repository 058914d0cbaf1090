"""Small functions compiled while a test runs: what their programs predict beside what torch computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from cpp_bits import torch_arithmetic
from cpp_functions import packed, unpacked

from graphdiff.capture.inductor import cuda_code_for_function
from graphdiff.capture.inductor.native import native_code_for_function
from graphdiff.lower.inductor import Input, program_from_output_code
from graphdiff.lower.inductor_cpp import program_from_cpp_code
from graphdiff.program import Evaluation, Options, Program
from graphdiff.program.dtypes import FORMATS

Pairs = list[tuple[np.ndarray, np.ndarray]]


def _inputs(given: list[Any]) -> list[Input | int]:
    found: list[Input | int] = []
    for i, one in enumerate(given):
        kept = packed(one.value) if isinstance(one.value, torch.Tensor) else None
        found.append(int(one.value) if kept is None else Input(f"x{i}", unpacked(kept), kept["dtype"], tuple(one.value.stride())))
    return found


def _pairs(program: Program, bits: dict, places: dict[str, Any]) -> Pairs:
    evaluation = Evaluation(program, bits, Options(arithmetic=torch_arithmetic()))
    return [(evaluation.output(i).astype(np.float32), places[o.name].detach().float().numpy().reshape(evaluation.output(i).shape))
            for i, o in enumerate(program.outputs) if o.name in places]


def native(function: Callable[..., Any], *args: Any) -> tuple[Program, Pairs]:
    """The C++ code for this machine: its program, and (predicted, what the compiled code gave) of each float result."""
    torch._dynamo.reset()
    made = native_code_for_function(function, args, run=True)
    program, bits = program_from_cpp_code(made.code, _inputs(made.inputs), name="f")
    results = zip([o for o in made.outputs if o.kind == "output"], made.results)
    return program, _pairs(program, bits, {f"output_{o.position}": t for o, t in results if isinstance(t, torch.Tensor) and t.is_floating_point()})


def cuda(function: Callable[..., Any], *args: Any) -> tuple[Program, Pairs, str]:
    """Triton code for cuda:90: its program, (predicted, what eager torch gives) of each float result, and the code."""
    torch._dynamo.reset()
    code = cuda_code_for_function(function, args, "cuda:90")
    program, bits = program_from_output_code(code.text, _inputs(code.inputs), name="f")
    results = function(*args)
    results = results if isinstance(results, tuple) else (results,)
    return program, _pairs(program, bits, {f"output_{o.position}": t for o, t in zip(code.outputs, results) if t.is_floating_point()}), code.text


def assert_equal(pairs: Pairs, count: int = 1, flips: float = 0.0) -> None:
    """Bit by bit, but for a share of elements."""
    assert len(pairs) == count
    for predicted, real in pairs:
        wrong = (predicted != real) & ~(np.isnan(predicted) & np.isnan(real)) | (np.signbit(predicted) != np.signbit(real)) & (predicted == 0) & (real == 0)
        assert wrong.sum() <= flips * wrong.size, (predicted[wrong][:4], real[wrong][:4])


def assert_near(pairs: Pairs, dtype: str = "bfloat16", count: int = 1) -> None:
    """To a few last places of `dtype`, of the largest element."""
    assert len(pairs) == count
    step = 2.0 ** (1 - FORMATS[dtype].precision)
    for predicted, real in pairs:
        assert np.array_equal(np.isfinite(predicted), np.isfinite(real))
        finite = np.isfinite(real)
        assert np.array_equal(predicted[~finite], real[~finite], equal_nan=True)
        scale = np.abs(real[finite]).max(initial=0.0)
        assert np.allclose(predicted[finite], real[finite], rtol=4 * step, atol=4 * step * scale)
