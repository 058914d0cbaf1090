"""Dumps in fixtures/dumps: what torch wrote, without the records that nothing reads (times, guards, metrics).

    python tools/make_dump_fixtures.py

Payloads stay as they were written (they are hashed).
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEPT = re.compile(
    r'"(?:str|torch_version|dynamo_start|describe_source|dynamo_output_graph|inductor_post_grad_graph|'
    r'fx_graph_runnable|inductor_output_code)"'
)
WHAT = {"inference": ["norm"], "training": ["norm:training"], "several": ["norm", "mlp"], "cpu": ["norm:native"]}


def main() -> None:
    for name, functions in WHAT.items():
        folder = ROOT / "fixtures" / "dumps" / name
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            env = {
                **os.environ,
                "TORCH_TRACE": f"{scratch}/trace",
                "TORCH_LOGS": "output_code,post_grad_graphs",
                "TORCH_LOGS_OUT": f"{scratch}/logs.txt",
                "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
                "PYTHONPATH": str(ROOT),
            }
            script = ROOT / "tests" / "support" / "dump_functions.py"
            subprocess.run([sys.executable, script, f"{scratch}/seen.json", *functions], env=env, check=True, cwd=ROOT)
            (log,) = Path(scratch, "trace").glob("dedicated_log_torch_trace_*.log")
            (folder / "dedicated_log_torch_trace_fixture.log").write_text(trimmed(log.read_text()))
            if name == "inference":
                target = folder.parent / f"{name}-logs"
                target.mkdir(exist_ok=True)
                (target / "torch_logs.txt").write_text(Path(scratch, "logs.txt").read_text())


def trimmed(text: str) -> str:
    kept, keep = [], False
    for line in text.split("\n"):
        if not line.startswith("\t"):
            body = line.partition("] {")[2]
            keep = bool(KEPT.search(body[:120])) and "chromium_event" not in body[:40]
        if keep:
            kept.append(line)
    return "\n".join(kept) + "\n"


if __name__ == "__main__":
    main()
