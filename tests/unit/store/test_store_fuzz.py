"""A thousand mutated captures in a process with little memory: each loads or raises GraphdiffError, nothing is executed."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LIMIT = 3 << 30


@pytest.mark.parametrize("seed", [1, 2])
def test_a_thousand_mutations(seed):
    root = HERE.parents[2]
    done = subprocess.run(
        [sys.executable, HERE / "store_fuzz.py", str(seed), "1000"], capture_output=True, text=True, timeout=240,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(HERE)]), "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1000 read" in done.stdout
