"""Values without dimensions (a sum, a loss) are moved and proved as others are, in both directions."""

import pytest

torch = pytest.importorskip("torch")

from graphdiff import pipeline  # noqa: E402

CODE = """
import torch
def rounds_early(x): return x.sum() / 7,
def rounds_late(x): return (x.float().sum() / 7).bfloat16(),
def inputs(seed): return torch.randn(6, 9, generator=torch.Generator().manual_seed(seed)).bfloat16(),
"""


@pytest.mark.parametrize("inference, training, moved", [("rounds_early", "rounds_late", (1, 0)), ("rounds_late", "rounds_early", (0, 1))])
def test_a_sum_of_everything(inference, training, moved, tmp_path):
    file = tmp_path / "functions.py"
    file.write_text(CODE)
    report = pipeline.compare_captures(*(pipeline.function_capture(f"{file}:{name}", f"{file}:inputs", 0) for name in (inference, training)))
    assert (report.summary.moved.inference, report.summary.moved.training) == moved
    assert report.regions[0].witness.transplant_bitwise is True and report.whole_program.transplant_bitwise is True
