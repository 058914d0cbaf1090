"""Functions that nobody wrote, as many as one likes: what their programs say against what runs.

    python benchmarks/random_functions.py 0 200 [--checks eager,native,cuda,one]

eager: the eager program against torch on this CPU, which rounds more in a few ops (docs/tricky_cases.md). native: against
Inductor's C++ code. cuda: every Triton kernel in the interpreter. one: eager against compiled for cuda:90, as reports.
Prints a line for what is wrong and what is refused, then the counts; `showing SEED` prints a function instead.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter

from _child import ROOT

sys.path.insert(0, str(ROOT / "tests" / "support"))


def main() -> None:
    import torch
    from random_functions import random_function
    from random_programs import cuda_kernels, eager_against_compiled, eager_bits, native_bits

    from graphdiff.errors import GraphdiffError

    checks = {"eager": eager_bits, "native": native_bits, "cuda": cuda_kernels, "one": eager_against_compiled}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first", help="the first seed, or `showing`")
    parser.add_argument("last", type=int)
    parser.add_argument("--checks", default=",".join(checks))
    given = parser.parse_args()
    if given.first == "showing":
        print(random_function(given.last).text)
        return
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # additions into memory in one order
    counts: Counter = Counter()
    for seed in range(int(given.first), given.last):
        made = random_function(seed)
        for name in given.checks.split(","):
            try:
                said = checks[name](made)
            except GraphdiffError as error:
                counts[name, "refused"] += 1
                print(f"{seed} {name}: refused: {str(error)[:150]}", flush=True)
                continue
            counts[name, "wrong" if said else "right"] += 1
            if said:
                print(f"{seed} {name}: {said[:250]}", flush=True)
    for name in given.checks.split(","):
        print(f"{name}: " + ", ".join(f"{counts[name, how]} {how}" for how in ("right", "wrong", "refused")))


if __name__ == "__main__":
    main()
