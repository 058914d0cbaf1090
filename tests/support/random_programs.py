"""What a random function's programs say against what runs: each check returns what is wrong, in words; nothing if all is well.

GraphdiffErrors (an op without a lowering) pass through.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from cpp_bits import differing, torch_arithmetic
from random_functions import RandomFunction

from graphdiff.capture.compiled import record_compiled
from graphdiff.capture.function import Function, Recorded, record_eager
from graphdiff.program import Evaluation, Options

TIES = 0.02
"""Share of BF16 elements that the last bit of a float32 number may turn."""


def function_of(made: RandomFunction) -> Function:
    names = tuple(f"x{i}" for i in range(len(made.args)))
    return Function(made.compiled(), tuple(a.clone() for a in made.args), names, f"random_{made.seed}.py", "f")


def results(made: RandomFunction) -> list[torch.Tensor]:
    return list(made.call(*(a.clone() for a in made.args)))


def eager_bits(made: RandomFunction) -> str:
    """The eager program on torch's own transcendentals and sums, against torch."""
    return _against(record_eager(function_of(made)), results(made))


def native_bits(made: RandomFunction) -> str:
    """The C++ program against what Inductor's compiled code returned on this machine."""
    from graphdiff.capture.inductor.native import native_code_for_function

    function = function_of(made)
    ran = native_code_for_function(function.call, function.args, run=True)
    return _against(record_compiled(function_of(made), "native"), ran.results)


def cuda_kernels(made: RandomFunction, seconds: int = 60) -> str:
    """Every Triton kernel on random memory, in the interpreter. Padded sums, and ties in a sort, may fall otherwise."""
    import kernel_bits

    calls = kernel_bits.recorded(lambda: record_compiled(function_of(made), "cuda:90"))
    found = kernel_bits.differing(calls, seconds=seconds)
    wrong = [f for f in found if isinstance(f, str) or f[1] > max(1, 0.005 * f[2])]
    return "; ".join(map(str, wrong))


def eager_against_compiled(made: RandomFunction) -> str:
    """Compared, the two hold the same numbers before any rounding; what the report claims of a region, it proves or says why not."""
    from graphdiff.capture.header import function_header
    from graphdiff.pipeline import compare_captures
    from graphdiff.probe import probe
    from graphdiff.store import Capture

    captures = []
    for recorded in (record_compiled(function_of(made), "cuda:90"), record_eager(function_of(made))):
        data = probe(recorded.program, recorded.bits, static_rule=False, pin_anchors=False)
        recorded.program.data.update(recorded.bits)
        captures.append(Capture(function_header("random.py:f", made.seed, recorded), recorded.program, data, {}))
    report = compare_captures(*captures)
    wrong = [f"output {o.training} {o.how}" for o in report.outputs if o.same is False]
    wrong += [f"{r.name} not proved" for r in report.regions if r.witness.transplant_bitwise is False and not r.witness.reason]
    return "; ".join(wrong)


def _against(recorded: Recorded, wanted: list[Any]) -> str:
    evaluation = Evaluation(recorded.program, recorded.bits, Options(arithmetic=torch_arithmetic()))
    if len(recorded.program.outputs) != len(wanted):
        return f"{len(recorded.program.outputs)} outputs where {len(wanted)} were returned"
    wrong = []
    for i, t in enumerate(wanted):
        real, dtype = t.detach().float().numpy(), str(t.dtype).removeprefix("torch.")
        found = np.asarray(evaluation.output(i)).astype(np.float32)
        if found.size != real.size:
            wrong.append(f"output {i}: {found.shape} where {real.shape} was returned")
            continue
        count, worst, of_largest = differing(found.reshape(real.shape), real, dtype)
        if count > max(2, TIES * real.size) if dtype != "float32" else of_largest > 64:
            wrong.append(f"output {i}: {count} of {real.size} {dtype} elements, by {worst:.3g} ulp")
    return "; ".join(wrong)
