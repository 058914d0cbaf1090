"""`graphdiff --help` in at most 0.3 s, beside an interpreter that does nothing."""

import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from _child import graphdiff, table, timed, verdict

REPEATS = 9


def main() -> int:
    times: dict[str, list[float]] = {"graphdiff --help": [], "graphdiff compare --help": [], "python -c pass": []}
    for _ in range(REPEATS):  # in turn, so that a busy moment hits all
        times["graphdiff --help"].append(timed(graphdiff("--help"))[0])
        times["graphdiff compare --help"].append(timed(graphdiff("compare", "--help"))[0])
        times["python -c pass"].append(timed([sys.executable, "-c", "pass"])[0])
    median = {name: statistics.median(found) for name, found in times.items()}
    bare = median["python -c pass"]
    table(["command", "median", "best", "to python"],
          [[name, f"{m:.3f} s", f"{min(times[name]):.3f} s", f"{m / bare:.1f}"] for name, m in median.items()])
    return 0 if verdict("graphdiff --help, best", min(times["graphdiff --help"]), 0.3, " s") else 1


if __name__ == "__main__":
    sys.exit(main())
