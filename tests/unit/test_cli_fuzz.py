"""A thousand mutated captures through `compare` and `show`, in a process with little memory (see cli_fuzz.py)."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LIMIT = 3 << 30


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_five_hundred_mutations(seed, tmp_path):
    done = subprocess.run(
        [sys.executable, HERE / "cli_fuzz.py", str(seed), "500", str(tmp_path)], capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (HERE.parents[1], HERE / "store"))), "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "500 run" in done.stdout
