"""Dumps in fixtures/dumps: what torch wrote, without the records that nothing reads (times, guards, metrics).

    python tools/make_dump_fixtures.py

Payloads stay as they were written, but for the checkout's path; they are hashed anew.
"""

import hashlib
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
ELSEWHERE = "/home/user/graphdiff"
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
            (folder / "dedicated_log_torch_trace_fixture.log").write_text(anonymous(trimmed(log.read_text())))
            if name == "inference":
                target = folder.parent / f"{name}-logs"
                target.mkdir(exist_ok=True)
                (target / "torch_logs.txt").write_text(Path(scratch, "logs.txt").read_text().replace(str(ROOT), ELSEWHERE))


def anonymous(log: str) -> str:
    """The log as a checkout in another place would have written it."""
    records = re.split(r"(?m)^(?=[VIWE]\d{4} )", log.replace(str(ROOT), ELSEWHERE))
    return "".join(map(rehashed, records))


def rehashed(record: str) -> str:
    """A record whose `has_payload` is the hash of its payload, as torch._logging._internal.trace_structured writes it."""
    head, *payload = record.rstrip("\n").split("\n")
    text = "\n".join(line[1:] for line in payload)
    digest = hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()
    head = re.sub(r'("has_payload": ")[0-9a-f]{32}"', rf'\g<1>{digest}"', head)
    return "\n".join([head, *payload]) + "\n" if record else ""


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
