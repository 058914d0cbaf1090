"""Every kernel of several hundred functions, forward and backward: lowered, or named as not understood.

The functions are those of tests/cases (both sides) and tests/support/function_cases.py, compiled for cuda:90 under
no_grad and with gradients, and tests/support/schedule_functions.py, for Inductor's rarer schedules. Their code is kept in
build/benchmarks/kernel_sweep (`--again` reads it from there); kernel_proofs.py proves what was lowered.
"""

import argparse
import hashlib
import importlib.util
import pickle
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from _child import CACHE, ROOT, table, verdict

KEPT = CACHE / "kernel_sweep"
sys.path.insert(0, str(ROOT / "tests" / "support"))


@dataclass
class Seen:
    """What happened to one direction (inference, training forward, backward) of all functions.

    `kernels` are told apart by their text (comments and name left out). `lowered` were in some graph; `named` are the
    rest: the kernel with the construct that `stops` counts, and those behind it in its graph.
    """

    graphs: int = 0
    whole: int = 0
    kernels: set[str] = field(default_factory=set)
    lowered: set[str] = field(default_factory=set)
    named: dict[str, str] = field(default_factory=dict)
    stops: Counter = field(default_factory=Counter)


def functions() -> Iterator[tuple[str, Any, tuple]]:
    """(name, callable, arguments)."""
    from function_cases import CASES

    for name, (function, args) in CASES.items():
        yield f"functions/{name}", function, args
    for folder in ("public", "more"):
        for path in sorted((ROOT / "tests" / "cases" / folder).glob("[0-9]*.py")):
            spec = importlib.util.spec_from_file_location(f"case_{path.stem}", path)
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            for side in ("inference", "training"):
                yield f"{folder}/{path.stem}:{side}", getattr(module, side), tuple(module.inputs(0))


def written(name: str, function: Any, args: tuple, training: bool) -> tuple[Any, str]:
    """(output code, "") or (None, why there is none)."""
    import torch
    from torch.utils._pytree import tree_leaves, tree_map

    from graphdiff.capture.inductor import cuda_code_for_function
    from graphdiff.errors import GraphdiffError

    if training:
        if not any(isinstance(t, torch.Tensor) and t.is_floating_point() for t in tree_leaves(args)):
            return None, "no float input"
        args = tree_map(lambda t: t.detach().clone().requires_grad_() if isinstance(t, torch.Tensor) and t.is_floating_point() else t, args)
    try:
        return cuda_code_for_function(function, args, "cuda:90", training=training), ""
    except (GraphdiffError, RuntimeError, NotImplementedError) as error:
        return None, getattr(error, "what", str(error)).splitlines()[0][:100]


def asked() -> Iterator[tuple[str, bool, Any]]:
    """(name, with gradients, what writes the code) of each compilation."""
    import schedule_functions

    for name, function, args in functions():
        for training in (False, True):
            yield name, training, partial(written, name, function, args, training)
    for name, case in schedule_functions.CASES.items():
        yield f"schedules/{name}", case.training, lambda case=case: (schedule_functions.written(case), "")


def collect(again: bool) -> Iterator[tuple[str, bool, Any, str]]:
    KEPT.mkdir(parents=True, exist_ok=True)
    for name, training, write in asked():
        path = KEPT / (hashlib.sha256(f"{name} {training}".encode()).hexdigest()[:16] + ".pickle")
        if again and path.exists():
            code, why = pickle.loads(path.read_bytes())
        else:
            code, why = write()
            path.write_bytes(pickle.dumps((code, why)))
        yield name, training, code, why


def lowered(code: Any, training: bool) -> Any:
    """The program of a graph, or of a forward with its backward; the pieces are named so. Raises GraphdiffError."""
    from graphdiff.lower.inductor import program_from_output_code
    from graphdiff.lower.inductor.function import program_from_forward_and_backward
    from graphdiff.lower.inductor.output_code import OutputCode

    if not training or code.backward is None:
        return program_from_output_code(code.text, inputs_of(code), name="forward")[0]
    pieces = [OutputCode(c.text, name, c.kernel_sources) for c, name in ((code, "forward"), (code.backward, "backward"))]
    return program_from_forward_and_backward(*pieces, inputs_of(code), tangents_of(code))[0]


def inputs_of(code: Any) -> list[Any]:
    from graphdiff.lower.aten import is_float, raw_bits
    from graphdiff.lower.inductor import Input

    made = []
    for item in code.inputs:
        if item.kind == "size":
            made.append(int(item.value))
            continue
        dense = item.value.detach().cpu().contiguous()
        made.append(Input(item.name, raw_bits(dense) if is_float(dense) else dense.numpy(), str(item.value.dtype).removeprefix("torch."), tuple(item.value.stride())))
    return made


def tangents_of(code: Any) -> list[Any]:
    from graphdiff.capture.dumps.signature import signature_of
    from graphdiff.capture.dumps.standin import standin
    from graphdiff.lower.inductor import Input

    signature = signature_of(code.backward.text, 1, "the backward's code").arguments
    wanted = [a for a, item in zip(signature, code.backward.inputs) if item.name.startswith("tangents")]
    return [Input(f"grad_output{i}", standin(t, i, 0), t.dtype, t.strides) for i, t in enumerate(wanted)]


class Watch:
    """Counts the launches of Triton kernels that succeed, by their text."""

    def __init__(self) -> None:
        from graphdiff.lower.inductor import output_code

        self.module, self.original, self.seen = output_code, output_code.launch, set()

    def __enter__(self) -> set[str]:
        def launch(ctx: Any, kernel: Any, arguments: list[Any]) -> None:
            self.original(ctx, kernel, arguments)
            self.seen.add(kernel.name)

        self.module.launch = launch
        return self.seen

    def __exit__(self, *_: object) -> None:
        self.module.launch = self.original


def texts(text: str) -> dict[str, str]:
    """Kernel name -> what tells it from others."""
    import ast

    from graphdiff.lower.inductor.output_code import OutputCode

    found = {}
    for name, (constant, _) in OutputCode(text).sources.items():
        function = next(f for f in ast.parse(constant.value).body if isinstance(f, ast.FunctionDef))
        found[name] = hashlib.sha256((ast.unparse(function.args) + "\n".join(map(ast.unparse, function.body))).encode()).hexdigest()
    return found


def sweep(again: bool) -> tuple[dict[str, Seen], Counter, list[str]]:
    from graphdiff.errors import GraphdiffError

    seen = {kind: Seen() for kind in ("inference", "training forward", "backward")}
    without, lines = Counter(), []
    for name, training, code, why in collect(again):
        if code is None:
            without[("with gradients: " if training else "under no_grad: ") + why] += 1
            continue
        kinds = {"training forward" if training else "inference": code.text}
        if training and code.backward is not None:
            kinds["backward"] = code.backward.text
        where = ""
        with Watch() as launched:
            try:
                lowered(code, training)
            except GraphdiffError as error:
                where = f"{error.what} @ {error.where}"
        for kind, text in kinds.items():
            one, names = seen[kind], texts(text)
            one.graphs += 1
            one.kernels |= set(names.values())
            reached = {names[k] for k in launched if k in names}
            one.lowered |= reached
            stopped_here = where and (len(kinds) == 1 or where.endswith(", backward") == (kind == "backward"))
            one.whole += not where or (kind == "training forward" and "backward" in kinds and where.endswith(", backward"))
            if stopped_here:
                what = where.split(" @ ")[0]
                one.stops[what] += 1
                lines.append(f"{name} [{kind}]: {where}")
            for text_of in set(names.values()) - reached:
                one.named.setdefault(text_of, where.split(" @ ")[0] or "never launched")
    for one in seen.values():
        one.named = {k: v for k, v in one.named.items() if k not in one.lowered}
    return seen, without, lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", action="store_true", help="lower the code of the last run")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    import numpy as np
    import torch

    torch.set_num_threads(1)
    with np.errstate(all="ignore"):
        seen, without, lines = sweep(options.again)
    table(["", "graphs", "whole graph lowered", "Triton kernels", "lowered", "in or after what is not understood"],
          [[kind, str(s.graphs), str(s.whole), str(len(s.kernels)), str(len(s.lowered)), str(len(s.named))] for kind, s in seen.items()])
    every = [set().union(*(getattr(s, part) for s in seen.values())) for part in ("kernels", "lowered")]
    print(f"all: {sum(s.graphs for s in seen.values())} graphs, {len(every[0])} different Triton kernels, {len(every[1])} lowered")
    stops = sum((s.stops for s in seen.values()), Counter())
    print("\nnot understood (graphs that stop there):")
    for what, count in stops.most_common():
        print(f"{count:4d}  {what}")
    print("\nno code (torch says):")
    for what, count in without.most_common():
        print(f"{count:4d}  {what}")
    print("\n" + "\n".join(lines))
    unnamed = sum(count for what, count in stops.items() if what.startswith("cannot follow"))
    print()
    return not verdict("stops that name no construct", unnamed, 0)


if __name__ == "__main__":
    sys.exit(main())
