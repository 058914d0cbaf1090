"""Inductor's rarer schedules against eager: what is a moved rounding there, and what is none."""

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from graphdiff import pipeline  # noqa: E402

CODE = """
import sys
sys.path.insert(0, {support!r})
from schedule_functions import CASES
case = CASES[{name!r}]
function = case.function
def inputs(seed): return case.args
"""


@pytest.mark.parametrize("name, moved", [
    ("mask", {"xhat"}), ("nonzero", set()), ("item", set()), ("truncated", set()), ("masked_bits", set()),
    ("split_scalar", set()), ("split_columns", set()),
])  # fmt: skip
def test_compiled_against_eager(name, moved, tmp_path):
    """Rows that a mask keeps are a norm's as all rows are; bits cut off are the same truncation; a sum that is split over
    kernels is one value, not another."""
    file = tmp_path / "functions.py"
    file.write_text(CODE.format(support=str(Path(__file__).parents[1] / "support"), name=name))
    captures = [pipeline.function_capture(f"{file}:function", f"{file}:inputs", 0, compile=compiled) for compiled in (True, False)]
    report = pipeline.compare_captures(*captures)
    assert (report.summary.unmatched.inference, report.summary.unmatched.training) == (0, 0)
    assert report.summary.moved.inference == 0
    assert {m.value for r in report.regions for m in r.moved} == moved
    assert all(r.witness.transplant_bitwise is True for r in report.regions)
