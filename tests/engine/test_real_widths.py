"""Qwen3-8B at its real widths, two layers, on real vLLM and real transformers."""

import subprocess
import sys
from pathlib import Path

import pytest
from expected import assert_proven, found, moved, unfolded

pytestmark = [pytest.mark.engine, pytest.mark.slow]
pytest.importorskip("vllm")
BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "probe_wide.py"


def test_qwen3_8b_widths_two_layers(tmp_path):
    run = subprocess.run([sys.executable, str(BENCHMARK), "--keep", str(tmp_path)], capture_output=True, text=True, timeout=900)
    print(run.stdout)
    assert run.returncode == 0 and run.stdout.count("ok  ") == 4, run.stdout + run.stderr[-2000:]
    from graphdiff import pipeline

    report = pipeline.compare(*(str(tmp_path / f"qwen3-8b-base.{side}") for side in ("vllm", "transformers")))
    assert found(report) == moved("qwen3", 2)
    assert (report.summary.moved.training, report.summary.moved.inference) == (15, 0)
    assert (unfolded(report), unfolded(report, "inference")) == (27, 0)
    assert report.summary.unmatched.inference == report.summary.unmatched.training == 0
    assert_proven(report)
