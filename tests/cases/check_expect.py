"""Proves the EXPECT of the cases in `more/` on real bits: python tests/cases/check_expect.py [FILE_OR_FOLDER ...]

A negative's two functions must agree bit for bit, or, where EXPECT says `noise`, differ only in the last bits of FP32.
A positive brings `aligned(rnd, *inputs)`: the unrounded computation with `rnd(name, value, dtype=bfloat16)` at every
moved rounding. With the roundings of `moved_training_only` on it must be `training` bit for bit, with those of
`moved_inference_only` on it must be `inference` (the list is complete); leaving any one of them out must change bits
(the list is necessary). `slack="..."` in EXPECT allows a few elements per thousand to differ, for the reason it gives.
A `rounding_mode` case only has to differ.
"""
import importlib.util
import pathlib
import sys

import torch

SEEDS = (0, 1, 2)
SLACK = 4e-3                # share of elements that GEMM or reduction order may flip, where a case says so
HERE = pathlib.Path(__file__).parent


def load(path):
    spec = importlib.util.spec_from_file_location("case_" + pathlib.Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def outputs(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def differing(one, other):
    """Elements whose bits differ, of how many; a different dtype is compared as exact numbers."""
    one, other = outputs(one), outputs(other)
    assert len(one) == len(other), "another number of outputs"
    bad = total = 0
    for a, b in zip(one, other):
        assert a.shape == b.shape, f"shapes {tuple(a.shape)} {tuple(b.shape)}"
        same = (a.double() == b.double()) | (a.isnan() & b.isnan())
        bad, total = bad + int((~same).sum()), total + a.numel()
    return bad, total


def noise_only(one, other):
    """Differences no larger than FP32 explains: a last place of the output's own format, in few elements."""
    for a, b in zip(outputs(one), outputs(other)):
        d = (a.double() - b.double()).abs()
        if a.dtype == torch.float32:
            if not bool((d <= 2e-6 * b.double().abs().clamp_min(1.0)).all()):
                return False
            continue
        place = 2 * torch.finfo(a.dtype).eps * b.double().abs() + 1e-30
        if float((d > 0).double().mean()) > SLACK or not bool((d <= place).all()):
            return False
    return True


def rounder(on, seen):
    def rnd(name, value, dtype=torch.bfloat16):
        seen.add(name)
        return value.to(dtype).to(value.dtype) if name in on else value
    return rnd


def check(path):
    """What is wrong with a case, as a list of sentences; and what was seen, in words."""
    case, wrong, seen_words = load(path), [], []
    expect = case.EXPECT
    tm, im = expect.get("moved_training_only", []), expect.get("moved_inference_only", [])
    for seed in SEEDS:
        def run(fn, *front):
            return fn(*front, *[x.clone() if isinstance(x, torch.Tensor) else x for x in case.inputs(seed)])
        inf, tr = run(case.inference), run(case.training)
        bad, total = differing(inf, tr)
        seen_words.append(f"{bad}/{total}")
        if expect["verdict"] == "same":
            if bad and not (expect.get("noise") and noise_only(inf, tr)):
                wrong.append(f"seed {seed}: negative differs in {bad} of {total}")
            continue
        if not bad:
            wrong.append(f"seed {seed}: positive does not differ")
        if expect["verdict"] == "rounding_mode":
            continue
        if "aligned" not in vars(case):
            wrong.append("no aligned()")
            break
        allowed = int(SLACK * total) if expect.get("slack") else 0
        for names, side, what in ((tm, tr, "training"), (im, inf, "inference")):
            seen = set()
            miss, _ = differing(run(case.aligned, rounder(set(names), seen)), side)
            if miss > allowed:
                wrong.append(f"seed {seed}: aligned is not {what}: {miss} of {total}")
            if seen != set(tm) | set(im):
                wrong.append(f"names {sorted(seen ^ (set(tm) | set(im)))} in only one of aligned and EXPECT")
            for name in names:
                left, _ = differing(run(case.aligned, rounder(set(names) - {name}, set())), side)
                if left <= max(allowed, miss):
                    wrong.append(f"seed {seed}: {name} is not needed ({left} of {total})")
    return wrong, f"({len(tm)}, {len(im)}) differing {' '.join(seen_words)}"


def main(args):
    torch.set_num_threads(1)
    paths = [pathlib.Path(a) for a in args] or [HERE / "more"]
    files = [f for p in paths for f in (sorted(p.glob("[0-9]*.py")) if p.is_dir() else [p])]
    failed = 0
    for f in files:
        try:
            with torch.no_grad():
                wrong, words = check(f)
        except Exception as problem:  # a broken case is a failed case, not the end of the run
            wrong, words = [f"{type(problem).__name__}: {problem}"], ""
        failed += bool(wrong)
        print("BAD" if wrong else "ok ", f.stem, words, *wrong, sep="  ")
    print(f"{len(files) - failed}/{len(files)} cases are what they say")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
