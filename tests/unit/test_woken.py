"""Roundings that change nothing until others are gone: the proof fails, says why, and the next comparison finds them."""

import pytest

torch = pytest.importorskip("torch")

from graphdiff import pipeline  # noqa: E402

CODE = """
import torch
def rounds_all(x, w):
    product = x * w
    return (product + 0.25) * w,
def rounds_the_sum(x, w):
    total = (x.float() * w.float() + 0.25).bfloat16()
    return total * w,
def rounds_once(x, w):
    return ((x.float() * w.float() + 0.25) * w.float()).bfloat16(),
def inputs(seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.rand(8, 64, generator=g) + 2
    return x.bfloat16(), (torch.rand(64, generator=g) * 0.5 + 2).bfloat16()
"""


def test_a_rounding_that_another_hides(tmp_path):
    """Products in [4, 8) are whole multiples of 1/32, and so are they plus 0.25: only the first rounding is seen."""
    file = tmp_path / "functions.py"
    file.write_text(CODE)
    captures = {name: pipeline.function_capture(f"{file}:{name}", f"{file}:inputs", 0) for name in ("rounds_all", "rounds_the_sum", "rounds_once")}
    report = pipeline.compare_captures(captures["rounds_once"], captures["rounds_all"])
    assert [m.value for r in report.regions for m in r.moved] == ["x * w"]
    witness = report.regions[0].witness
    assert witness.transplant_bitwise is False
    assert witness.reason == "training rounds more once these roundings are gone (product + 0.25): move these, then compare again"

    next_report = pipeline.compare_captures(captures["rounds_once"], captures["rounds_the_sum"])
    assert len(next_report.regions) == 1 and next_report.regions[0].witness.transplant_bitwise is True


def test_a_proof_that_holds_gives_no_reason(tmp_path):
    file = tmp_path / "functions.py"
    file.write_text(CODE)
    one, two = (pipeline.function_capture(f"{file}:{name}", f"{file}:inputs", 0) for name in ("rounds_the_sum", "rounds_all"))
    report = pipeline.compare_captures(one, two)
    assert report.regions[0].witness.transplant_bitwise is True and report.regions[0].witness.reason == ""
