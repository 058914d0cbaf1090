"""Every kernel that kernel_sweep.py lowers, proved: its program against the interpreter's bits and against PTX and SASS.

    python benchmarks/kernel_sweep.py && python benchmarks/kernel_proofs.py

Kernels are told apart by their text. Answers are kept in build/benchmarks/kernel_proofs.json, so that a stopped run goes
on; `--fresh` starts anew. An hour or more on two cores: a kernel is compiled as it is, and without each of its roundings.
"""

import argparse
import json
import re
import sys
import warnings
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import kernel_sweep
from _child import CACHE, table, verdict

KEPT = CACHE / "kernel_proofs.json"
SECONDS = 60
"""The interpreter's limit for a launch."""
AT_ONCE = 24


def launches() -> dict[str, dict[str, Any]]:
    """By the kernel's text: what it was launched with, and what its program states."""
    from kernel_bits import recorded

    from graphdiff.errors import GraphdiffError
    from graphdiff.hardware.check import stated
    from graphdiff.lower.inductor.output_code import OutputCode

    found: dict[str, dict[str, Any]] = {}
    for name, training, code, _ in kernel_sweep.collect(True):
        if code is None:
            continue
        programs: list[Any] = []

        def lower(code: Any = code, training: bool = training, programs: list[Any] = programs) -> None:
            try:
                programs.append(kernel_sweep.lowered(code, training))
            except GraphdiffError:
                pass  # kernel_sweep names it; what was launched before it is proved

        calls = {kernel.name: (kernel, source, arguments) for kernel, source, arguments in recorded(lower)}
        for piece, text in (("forward", code.text), ("backward", code.backward.text if training and code.backward else "")):
            for kernel, key in kernel_sweep.texts(text).items() if text else ():
                if kernel in calls and key not in found:
                    said = stated(programs[0], kernel, piece) if programs else None
                    found[key] = {"from": name, "call": calls[kernel], "code": OutputCode(text, piece), "said": said}
    return found


def bits(found: dict[str, dict[str, Any]], answers: dict[str, Any]) -> None:
    from kernel_bits import differing

    left = [key for key in found if "bits" not in answers.get(key, {})]
    for start in range(0, len(left), AT_ONCE):
        keys = left[start:start + AT_ONCE]
        for key, answer in zip(keys, differing([found[k]["call"] for k in keys], seconds=SECONDS), strict=True):
            answers.setdefault(key, {"from": found[key]["from"], "kernel": found[key]["call"][0].name})["bits"] = answer if isinstance(answer, str) else list(answer[1:])
        keep(answers, f"bits: {start + len(keys)} of {len(left)}")


def machine_code(found: dict[str, dict[str, Any]], answers: dict[str, Any]) -> None:
    left = [key for key in found if "ptx" not in answers.get(key, {}) and found[key]["said"] is not None]
    with ThreadPoolExecutor(2) as pool:
        for n, (key, answer) in enumerate(zip(left, pool.map(lambda k: against_machine_code(found[k]), left), strict=True)):
            answers[key]["ptx"] = answer
            if n % AT_ONCE == 0 or n == len(left) - 1:
                keep(answers, f"machine code: {n + 1} of {len(left)}")


def against_machine_code(one: dict[str, Any]) -> list[Any]:
    """[verdict, reason, roundings there]."""
    from graphdiff.hardware.check import check_kernel
    from graphdiff.hardware.grammar import Refused
    from graphdiff.hardware.kernel import read_kernel
    from graphdiff.report.model import MachineKernel

    name = one["call"][0].name
    made = MachineKernel(kernel=name, pieces=[one["code"].name], target="cuda:90")
    try:
        check_kernel(read_kernel(one["code"], name), made, one["said"], 90)
    except Refused as refused:
        made.verdict, made.reason = "not checked", str(refused)
    return [made.verdict, made.reason, sum(r.state == "there" for r in made.roundings)]


def why_bits_differ(source: str) -> str:
    """What about a kernel leaves its bits open; empty if nothing does, and a differing bit is an error."""
    if "stable=False" in source:
        return "sorts equal numbers in any order"
    if "welford" in source:
        return "combines variances in another order"
    if "tl.fma(" in source:
        return "multiplies and adds with one FP32 rounding, where the program has two"
    sizes = [int(n) for n in re.findall(r"^    r\d_numel = (\d+)$", source, re.M)]
    if "tl.sum" in source and any(n & (n - 1) for n in sizes):
        return "adds a row padded to a power of two, in another order of FP32 sums"
    return ""


def keep(answers: dict[str, Any], line: str) -> None:
    half = KEPT.with_suffix(".half")
    half.write_text(json.dumps(answers))
    half.replace(KEPT)
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="forget what an earlier run found")
    parser.add_argument("--bits-only", action="store_true", help="do not compile")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import numpy as np
    import torch

    torch.set_num_threads(1)
    answers = json.loads(KEPT.read_text()) if KEPT.exists() and not options.fresh else {}
    with np.errstate(all="ignore"):
        found = launches()
        bits(found, answers)
    if not options.bits_only:
        machine_code(found, answers)
    for key, one in found.items():
        answers[key]["why"] = why_bits_differ(one["call"][1])
    return report([answers[key] for key in found])


def report(answers: list[dict[str, Any]]) -> int:
    run = [a for a in answers if isinstance(a["bits"], list)]
    wrong = [a for a in run if a["bits"][0]]
    late = Counter(a["bits"][:90] for a in answers if isinstance(a["bits"], str))
    table(["kernels", "run by the interpreter", "elements", "kernels with differing bits", "differing elements"],
          [[str(len(answers)), str(len(run)), f"{sum(a['bits'][1] for a in run):,}", str(len(wrong)), str(sum(a["bits"][0] for a in wrong))]])
    for why, count in Counter(a["why"] for a in wrong).most_common():
        print(f"{count:4d}  {why or 'NOT EXPLAINED'}: {sum(a['bits'][0] for a in wrong if a['why'] == why)} elements")
    for a in wrong:
        print(f"  {a['from']}: {a['kernel']}: {a['bits'][0]} of {a['bits'][1]}")
    for what, count in late.most_common():
        print(f"{count:4d}  not run: {what}")
    verdicts = Counter(a["ptx"][0] for a in answers if "ptx" in a)
    print()
    table(["verdict on machine code", "kernels"], [[what, str(count)] for what, count in verdicts.most_common()])
    for (what, why), count in Counter((a["ptx"][0], a["ptx"][1][:110]) for a in answers if "ptx" in a and a["ptx"][0] != "agrees").most_common():
        print(f"{count:4d}  {what}: {why}")
    share = sum(a["bits"][0] for a in wrong) / max(1, sum(a["bits"][1] for a in run))
    held = [verdict("kernels whose bits differ for no known reason", sum(not a["why"] for a in wrong), 0), verdict("share of elements that differ", share, 1e-4)]
    return not all(held)


if __name__ == "__main__":
    sys.exit(main())
