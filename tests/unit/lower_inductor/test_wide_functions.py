"""A wide set of functions, compiled for CUDA without a GPU: each lowers, near eager's numbers, or stops by name."""

import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = pytest.mark.slow

from function_cases import CASES  # noqa: E402

from graphdiff.capture.inductor import cuda_code_for_function  # noqa: E402
from graphdiff.errors import GraphdiffError  # noqa: E402
from graphdiff.lower.inductor import Input, program_from_output_code  # noqa: E402
from graphdiff.program.dtypes import FORMATS, STORAGE  # noqa: E402
from graphdiff.program.evaluate import Evaluation  # noqa: E402

NO_LOWERING = {"scatter_add": "index_add of several numbers to one place of bfloat16 memory", "dropout": "aten.randint.low_out",
               "conv1d": "extern_kernels.convolution"}
ROUNDED_LESS = {"round_half"}
"""round(3 * x): eager rounds the product before it takes the nearest integer, the kernel does not."""


def as_input(item):
    if not isinstance(item.value, torch.Tensor):
        return int(item.value)
    dtype = str(item.value.dtype).removeprefix("torch.")
    dense = item.value.detach().contiguous()
    if STORAGE.get(dtype) is np.uint16:
        dense = dense.view(torch.uint16)
    return Input(item.name, dense.numpy(), dtype, tuple(item.value.stride()))


@pytest.mark.parametrize("name", CASES)
def test_function(name):
    function, args = CASES[name]
    code = cuda_code_for_function(function, args, "cuda:90")
    inputs = [as_input(item) for item in code.inputs]
    if name in NO_LOWERING:
        with pytest.raises(GraphdiffError, match=re.escape(f"no lowering for {NO_LOWERING[name]}")):
            program_from_output_code(code.text, inputs, name=name)
        return
    program, bits = program_from_output_code(code.text, inputs, name=name)
    evaluation = Evaluation(program, bits)
    results = function(*args)
    results = results if isinstance(results, tuple) else (results,)
    made = {f"output_{o.position}": r for o, r in zip(code.outputs, results)}
    for i, output in enumerate(program.outputs):
        result = made.get(output.name)
        if result is not None and result.is_floating_point() and name not in ROUNDED_LESS:
            ours, theirs = evaluation.output(i), result.float().numpy().reshape(evaluation.output(i).shape)
            step = 2.0 ** (1 - FORMATS[str(result.dtype).removeprefix("torch.")].precision)
            scale = np.abs(theirs[np.isfinite(theirs)]).max()
            assert np.allclose(ours, theirs, rtol=4 * step, atol=4 * step * scale, equal_nan=True)
