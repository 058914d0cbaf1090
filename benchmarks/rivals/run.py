"""Prints what naive ways of comparing get right, beside graphdiff. python benchmarks/rivals/run.py [--no-models]

Cases: verdicts and counts of moved roundings over tests/cases. Models: how many values of a tiny Qwen3 in two spellings
are paired. Nothing here is used by graphdiff; it is kept so that the figures can be made again.
"""

import argparse
import importlib.util
import json
import multiprocessing
import pathlib
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(ROOT / "tests" / "cases")]

import check_expect  # noqa: E402
import edit_distance  # noqa: E402
import opnames  # noqa: E402


def by_opnames(path, case):
    with torch.no_grad():
        training, inference = opnames.compare(case.inference, case.training, case.inputs(0))
    return ("moved" if training or inference else "same"), (training, inference)


def by_graphdiff(path, case):
    from graphdiff import pipeline

    report = pipeline.compare(
        f"{path}:inference", f"{path}:training", inputs=f"{path}:inputs", seed=0, options=pipeline.CompareOptions()
    )
    moved = (report.summary.moved.training, report.summary.moved.inference)
    words = json.dumps([report.verdict, report.notes, [[m.mode, m.mechanism] for r in report.regions for m in r.moved]])
    verdict = "moved" if any(moved) else "rounding_mode" if report.exit_status == 1 and "mode" in words else "same"
    return verdict, moved


def score(name, judge, folder):
    verdicts = counts = total = 0
    wrong, start = [], time.perf_counter()
    for path in sorted(folder.glob("[0-9]*.py")):
        case = check_expect.load(path)
        expect, total = case.EXPECT, total + 1
        wanted = (len(expect.get("moved_training_only", [])), len(expect.get("moved_inference_only", [])))
        try:
            verdict, moved = judge(path, case)
        except Exception as problem:  # a rival that raises has no answer for the case
            wrong.append(f"{path.stem} {type(problem).__name__}")
            continue
        verdicts += verdict == expect["verdict"]
        counts += moved == wanted
        if verdict != expect["verdict"] or moved != wanted:
            wrong.append(f"{path.stem} {moved} for {wanted}")
    seconds = time.perf_counter() - start
    print(f"{name:<22} {folder.name:<7} {total:>5}  {verdicts:>8}  {counts:>6}  {seconds:>7.1f}")
    return wrong


def in_child(function, *args):
    """Runs in a process of its own, so that its peak memory is its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--no-models", action="store_true", help="only the cases")
    options.add_argument("--limit", type=float, default=60.0, help="seconds for each graph edit distance")
    options.add_argument("--wrong", action="store_true", help="name the cases a way gets wrong")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    judges = [("op names (difflib)", by_opnames)]
    try:
        from graphdiff import pipeline  # noqa: F401

        judges.append(("graphdiff", by_graphdiff))
    except ImportError as missing:
        print(f"graphdiff itself left out: {missing}")
    print(f"{'way':<22} {'folder':<7} {'cases':>5}  {'verdicts':>8}  {'counts':>6}  {'seconds':>7}")
    for name, judge in judges:
        for folder in ("public", "more"):
            wrong = score(name, judge, ROOT / "tests" / "cases" / folder)
            if chosen.wrong:
                print("   ", *wrong, sep="\n    ")
    if chosen.no_models:
        return
    print()
    row("way", "layers", "nodes", "paired", "recall", "optimal", "seconds", "GB")
    for layers in (1, 4):
        for name, reordered in (("op names (difflib)", False), ("the same, other order", True)):
            r = in_child(edit_distance.opname_recall, layers, reordered)
            row(name, layers, r["nodes"], r["paired"], r["recall"], "-", r["seconds"], "-")
        if importlib.util.find_spec("scipy") is None:
            print("graph edit distance left out: networkx needs scipy for it (pip install scipy)")
            continue
        r = in_child(edit_distance.measure, layers, chosen.limit)
        proven = "proven" if r["proven"] else "no"
        row(
            "graph edit distance", layers, r["nodes"], r["paired"], r["recall"], proven, r["seconds"], r["gigabytes"]
        )


def row(name, *cells):
    def word(cell):
        if isinstance(cell, float):
            return f"{cell:.2f}"
        return "/".join(map(str, cell)) if isinstance(cell, tuple) else cell

    print(f"{name:<22}", *(f"{word(cell):>8}" for cell in cells))


if __name__ == "__main__":
    main()
