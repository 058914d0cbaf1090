"""Comparing two captures: 36 layers in at most 2 s and 500 MB, twice the layers in at most 2.2 times the time.

Makes the captures of tiny Qwen3 with 36 and 72 layers once (a few minutes, real engine), into build/benchmarks.
The times are those of reading both files, comparing and proving, imports apart; each the best of several. Limits are
on CPU seconds of the one thread, which other work on the machine disturbs less.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _child import CACHE, ONE_THREAD, graphdiff, table, timed, verdict

LAYERS = (36, 72)
REPEATS = 5


def main() -> int:
    measured = {}
    for layers in LAYERS:
        files = [CACHE / f"qwen3-tiny-{layers}.{side}" for side in ("vllm", "transformers")]
        CACHE.mkdir(parents=True, exist_ok=True)
        for file, side in zip(files, ("vllm", "transformers")):
            if not file.exists():
                print(f"capturing {side}, {layers} layers", file=sys.stderr)
                timed(graphdiff("capture", side, "qwen3-tiny", "--layers", str(layers), "-o", str(file)))
        seconds, peak, out = timed([sys.executable, __file__, "--child", *map(str, files)], ONE_THREAD)
        *times, moved = out.split()
        measured[layers] = (*map(float, times), int(moved), peak)
    table(["layers", "wall", "CPU", "moved, all layers", "peak memory"],
          [[str(n), f"{wall:.2f} s", f"{cpu:.2f} s", str(moved), f"{peak} MB"] for n, (wall, cpu, moved, peak) in measured.items()])
    (_, one, _, memory), (_, two, _, _) = measured[LAYERS[0]], measured[LAYERS[1]]
    return 0 if all([verdict("36 layers, one thread", one, 2, " s"), verdict("36 layers, memory", memory, 500, " MB"),
                     verdict("72 layers to 36", two / one, 2.2)]) else 1


def child(inference: str, training: str) -> None:
    from graphdiff import pipeline

    times = []
    for _ in range(REPEATS):
        wall, cpu = time.perf_counter(), time.process_time()
        report = pipeline.compare(inference, training)
        times.append((time.perf_counter() - wall, time.process_time() - cpu))
    print(min(w for w, _ in times), min(c for _, c in times), sum(m.instances for r in report.regions for m in r.moved))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        sys.exit(main())
