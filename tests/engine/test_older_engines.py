"""Older engines through the same code: engine against engine, nothing may have moved.

GRAPHDIFF_VLLM_OVERLAYS names folders with other versions (docs/versions.md), separated as in PATH; without it, skipped.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from graphdiff import pipeline
from graphdiff.capture.vllm.versions import MODULES
from graphdiff.store import read_capture

pytest.importorskip("torch")
pytest.importorskip("vllm")
pytestmark = [pytest.mark.engine, pytest.mark.slow]
OVERLAYS = [folder for folder in os.environ.get("GRAPHDIFF_VLLM_OVERLAYS", "").split(os.pathsep) if folder]


@pytest.mark.skipif(not OVERLAYS, reason="GRAPHDIFF_VLLM_OVERLAYS names no other version of vllm")
@pytest.mark.parametrize("overlay", OVERLAYS or [""])
def test_another_version_has_the_same_schedule(overlay, captures, tmp_path):
    output = tmp_path / "other.capture"
    path = os.pathsep.join(p for p in (str(Path(overlay).resolve()), os.environ.get("PYTHONPATH", "")) if p)
    command = [sys.executable, "-m", "graphdiff", "capture", "vllm", "qwen3-tiny", "--output", str(output)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    other = read_capture(output)
    report = pipeline.compare_captures(read_capture(captures.engine("qwen3-tiny").path), other)
    assert report.inference.versions["vllm"] != report.training.versions["vllm"]
    assert ".".join(report.training.versions["vllm"].split(".")[:2]) in MODULES
    assert report.verdict == "same" and not report.regions
    assert (report.summary.unmatched.inference, report.summary.unmatched.training) == (0, 0)
