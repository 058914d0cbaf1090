"""HF-style add and RMSNorm as Inductor compiles it for CUDA: persistent and looped, inference and training. Four schedules."""

from pathlib import Path

import pytest

from graphdiff.errors import GraphdiffError
from graphdiff.pipeline import capture_function, compare_captures, function_capture

pytest.importorskip("torch")
pytest.importorskip("triton")

SOURCE = '''
import torch


def norm(x, residual, weight):
    h = residual + x
    f = h.float()
    y = f * torch.rsqrt(f.pow(2).mean(-1, keepdim=True) + 1e-6)
    return weight * y.to(h.dtype), h


def writes(x):
    return x.add_(1) * 2


def plain(x):
    return (x * 2).detach()


def at(width):
    def inputs(seed):
        generator = torch.Generator().manual_seed(seed)
        return tuple(torch.randn(s, generator=generator).bfloat16() for s in ((4, width), (4, width), (width,)))

    return inputs


at1024, at8192 = at(1024), at(8192)


def one(seed):
    return (torch.randn(4, 4),)
'''


@pytest.fixture(scope="module")
def schedules(tmp_path_factory):
    file = tmp_path_factory.mktemp("f") / "norms.py"
    file.write_text(SOURCE)
    return file, {
        (width, training): function_capture(f"{file}:norm", f"{file}:at{width}", 0, compile=True, training=training)
        for width in (1024, 8192)
        for training in (False, True)
    }


def sum_read_by(capture):
    """How the two readers of x + residual in the norm, its square and its scaling, read it: rounded or not."""
    program = capture.program
    added = next(n for n, node in enumerate(program.nodes) if node.op == "add" and node.shape[-1] > 1)
    held = {added: "float32"}
    for n, node in enumerate(program.nodes):
        if node.op == "round" and node.operands[0].nodes[0] in held:
            held[n] = node.dtype
    readers = {}
    for node in program.nodes:
        read = [held[o.nodes[0]] for o in node.operands if o.nodes[0] in held]
        if node.op == "mul" and read:
            readers["square" if len(read) == 2 else "scaled"] = read[0]
    return readers


@pytest.mark.parametrize(
    "width, training, square, scaled",
    [
        (1024, False, "float32", "float32"),  # persistent: one load, both readers take the register
        (1024, True, "bfloat16", "bfloat16"),  # the sum is saved for the backward, and used as it is saved
        (8192, False, "float32", "bfloat16"),  # looped: the second loop loads what the first stored
        (8192, True, "bfloat16", "bfloat16"),
    ],
)
def test_four_schedules(schedules, width, training, square, scaled):
    capture = schedules[1][width, training]
    assert sum_read_by(capture) == {"square": square, "scaled": scaled}
    (kernel,) = capture.header.kernels
    assert kernel.name.startswith("triton_red" if width == 8192 else "triton_per")
    assert ("with gradients" in capture.header.mode) == training
    assert len(capture.program.outputs) == 2, "what is saved for the backward is no result"


@pytest.mark.parametrize("width, readers", [(1024, 2), (8192, 1)])
def test_training_against_inference(schedules, width, readers):
    report = compare_captures(schedules[1][width, False], schedules[1][width, True])
    assert (report.summary.moved.training, report.summary.moved.inference) == (1, 0)
    (region,) = report.regions
    assert region.rule == "residual-rms-norm" and region.witness.transplant_bitwise is True
    assert region.moved[0].value == "x + residual"


def test_the_backward_is_one_program_with_its_forward(schedules):
    file = schedules[0]
    capture = function_capture(f"{file}:norm", f"{file}:at1024", 0, compile=True, backward=True)
    assert [o.name for o in capture.program.outputs] == ["output0", "output1", "grad_x", "grad_residual", "grad_weight"]
    assert {s.code for s in capture.program.sites if s.code} == {"output_code", "backward_code"}
    again = compare_captures(capture, capture)
    assert not again.summary.moved.training and not again.summary.unmatched.training


def test_what_cannot_be(schedules, tmp_path):
    file = schedules[0]
    with pytest.raises(GraphdiffError, match="add --compile"):
        capture_function(f"{file}:norm", f"{file}:at1024", Path(tmp_path / "x.capture"), training=True)
    with pytest.raises(GraphdiffError, match="no backward"):
        function_capture(f"{file}:plain", f"{file}:one", 0, compile=True, training=True)
    with pytest.raises(GraphdiffError, match="in-place"):
        function_capture(f"{file}:writes", f"{file}:one", 0, compile=True, training=True)
