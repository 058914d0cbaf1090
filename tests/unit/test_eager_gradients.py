"""Eager autograd recorded below autograd: bits of its backward ops, and compiled training held against it.

emulate_precision_casts restores every rounding of eager's backward in what it fuses, and none that a rewrite of the graph
took away in the forward: addmm adds in FP32, a softmax scales inside.
"""

import numpy as np
import pytest

from graphdiff.capture.compiled import record_compiled
from graphdiff.capture.function import Function, record_eager
from graphdiff.capture.header import function_header
from graphdiff.pipeline import compare_captures
from graphdiff.probe import probe
from graphdiff.program.evaluate import Evaluation
from graphdiff.store import Capture

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
F = torch.nn.functional


def bf16(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape))).bfloat16()


def eager_step(function, count):
    """`function` and the gradients of its `count` inputs, as one function of those and of the result's gradient."""

    def step(*given):
        inputs = [t.detach().requires_grad_() for t in given[:count]]
        with torch.enable_grad():
            result = function(*inputs)
            return result, *torch.autograd.grad(result, inputs, given[count].reshape(result.shape))

    return step


FUNCTIONS = {
    "silu": (lambda gate, up: F.silu(gate) * up, (bf16(8, 256), bf16(8, 256, seed=1))),
    "sigmoid": (lambda x, y: x * torch.sigmoid(y), (bf16(8, 256), bf16(8, 256, seed=1))),
    "softmax": (lambda x: torch.softmax(x * 0.3, -1), (bf16(8, 256),)),
    "halves": (lambda x: torch.cat((-x[..., 32:], x[..., :32]), -1), (bf16(4, 64),)),
    "rms_norm": (lambda x, w: F.rms_norm(x, (256,), w, 1e-6), (bf16(8, 256), bf16(256))),
    "mm_add": (lambda x, w, b: torch.mm(x, w) + b, (bf16(8, 64), bf16(64, 32), bf16(8, 32))),
}


@pytest.mark.parametrize("name", ["silu", "sigmoid", "softmax", "halves"])
def test_the_bits_of_eager_gradients(name):
    function, args = FUNCTIONS[name]
    args = (*args, bf16(*function(*args).shape, seed=9))
    step = eager_step(function, len(args) - 1)
    recorded = record_eager(Function(step, args, tuple(f"a{i}" for i in range(len(args))), __file__, name))
    evaluation = Evaluation(recorded.program, recorded.bits)
    for i, real in enumerate(step(*args)):
        found = evaluation.output(i).reshape(-1).astype(np.float32)
        apart = np.count_nonzero(found != real.detach().float().numpy().reshape(-1))
        assert apart <= real.numel() // 500, f"output {i}: {apart} of {real.numel()}"  # exp differs by an ulp here and there


def compared(name, on):
    """The report of compiled forward and backward against eager ones, on the compiled side's gradient of the result."""
    function, args = FUNCTIONS[name]
    names = tuple(f"a{i}" for i in range(len(args)))
    compiled = record_compiled(Function(function, args, names, __file__, name), "cuda:90", backward=True,
                               config_patches={"emulate_precision_casts": on})
    (grad,) = (i for i, n in enumerate(compiled.program.nodes) if n.op == "leaf" and n.attrs.get("name") == "grad_output0")
    given = (*args, torch.from_numpy(compiled.bits[grad].copy()).view(torch.bfloat16))
    eager = record_eager(Function(eager_step(function, len(args)), given, (*names, "grad"), __file__, name))
    captures = []
    for recorded in (compiled, eager):
        data = probe(recorded.program, recorded.bits, static_rule=False, pin_anchors=False)
        recorded.program.data.update(recorded.bits)
        captures.append(Capture(function_header(f"{__file__}:{name}", 0, recorded), recorded.program, data, recorded.sources))
    return compare_captures(*captures)


@pytest.mark.parametrize(("name", "off", "on"), [
    ("silu", 2, 0), ("sigmoid", 2, 0), ("rms_norm", 0, 0),
    ("mm_add", 1, 1), ("softmax", 2, 1),  # what is left is the forward's: a rewrite, with no cast to restore
])
def test_what_the_switch_restores_in_training(name, off, on):
    for switch, expected in ((False, off), (True, on)):
        report = compared(name, switch)
        assert (report.summary.moved.training, report.summary.moved.inference) == (expected, 0)
        assert report.whole_program.transplant_bitwise is True and bool(report.whole_program.differing) is bool(expected)
        assert not switch or not any("autograd.grad" in m.formed_in("training").text for r in report.regions for m in r.moved)


def test_gradients_come_in_the_order_of_the_functions_inputs():
    """Dynamo numbers the inputs as they are used first: y before x."""
    function, args = FUNCTIONS["sigmoid"]
    recorded = record_compiled(Function(function, args, ("x", "y"), __file__, "sigmoid"), "cuda:90", backward=True)
    assert [o.name for o in recorded.program.outputs] == ["output0", "grad_x", "grad_y"]
