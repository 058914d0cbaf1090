"""What the benchmarks share: commands in processes of their own, with their time and peak memory."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CACHE = ROOT / "build" / "benchmarks"
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def timed(command: list[str], env: dict[str, str] | None = None) -> tuple[float, int, str]:
    """(seconds, peak MB, standard output) of a command; raises RuntimeError with its last lines if it fails."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        start = time.perf_counter()
        child = subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, **(env or {})}, cwd=ROOT)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        if child.returncode not in (0, 1):
            raise RuntimeError(f"{' '.join(command)}: exit status {child.returncode}\n{err.read()[-2000:]}")
        return seconds, usage.ru_maxrss // 1024, out.read()


def graphdiff(*arguments: str) -> list[str]:
    return [str(Path(sys.executable).with_name("graphdiff")), *arguments]


def table(head: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]
    for row in (head, *rows):
        print("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip())


def verdict(what: str, value: float, limit: float, unit: str = "") -> bool:
    """Print one limit; True if it holds."""
    ok = value <= limit
    print(f"{'ok  ' if ok else 'OVER'} {what}: {value:.2f}{unit} (limit {limit:g}{unit})")
    return ok
