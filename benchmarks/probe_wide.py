"""Qwen3-8B at its real widths, two layers: the probe takes at most 10 s and 4 GB per side.

Each side is captured in a process of its own with one thread, weights made from the config (2.5 GB on disk, made once).
`--keep DIR` leaves the captures there.
"""

import json
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _child import ONE_THREAD, table, timed, verdict

MODEL = "qwen3-8b-base"
SIDES = ("transformers", "vllm")


def main(folder: Path) -> int:
    rows, good = [], []
    for side in SIDES:
        file = folder / f"{MODEL}.{side}"
        seconds, peak, out = timed([sys.executable, __file__, "--child", side, str(file)], ONE_THREAD)
        found = json.loads(out.splitlines()[-1])
        rows.append([side, f"{found['capture']:.1f} s", f"{peak} MB", f"{found['probe']:.1f} s", f"{found['before']} MB", f"{found['peak']} MB",
                     f"{file.stat().st_size / 1e6:.1f} MB"])
        good += [(f"{side}: probe", found["probe"], 10, " s"), (f"{side}: peak memory while probing", found["peak"] / 1024, 4, " GB")]
    table(["side", "capture", "its peak", "probe", "memory before", "while probing", "file"], rows)
    return 0 if all([verdict(*line) for line in good]) else 1


def memory() -> int:
    """MB resident now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20


def child(side: str, file: str) -> None:
    import torch

    from graphdiff import pipeline, probe
    from graphdiff.capture.models import resolve_model

    torch.set_num_threads(1)
    resolve_model(MODEL)
    found: dict = {}
    original = probe.probe

    def measured(*args, **kwargs):
        found["before"] = found["peak"] = memory()
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.01):
                found["peak"] = max(found["peak"], memory())

        watcher = threading.Thread(target=watch)
        watcher.start()
        start = time.perf_counter()
        try:
            return original(*args, **kwargs)
        finally:
            found["probe"] = time.perf_counter() - start
            done.set()
            watcher.join()

    probe.probe = measured
    start = time.perf_counter()
    if side == "vllm":
        pipeline.capture_vllm(MODEL, Path(file), in_process=True)
    else:
        pipeline.capture_transformers(MODEL, Path(file))
    found["capture"] = time.perf_counter() - start
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    elif sys.argv[1:2] == ["--keep"]:
        sys.exit(main(Path(sys.argv[2])))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            sys.exit(main(Path(scratch)))
