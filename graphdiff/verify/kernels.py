"""Each kernel of a patch against what the engine computes in its place, bit for bit, in Triton's repaired interpreter.

The engine's side is the captured program, evaluated in float32 by numpy: text of a capture is untrusted and is never
executed (tests/engine/test_emitted_kernels.py, which makes its captures itself, runs the engine's own kernels as well).
Row sums are taken on both sides in one order, over a power of two of lanes: a GPU's order is tuned by timing.
"""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from graphdiff.emit import EmittedRegion, RegionIR, emit_region, extract_regions
from graphdiff.errors import GraphdiffError
from graphdiff.store import Capture
from graphdiff.verify.inputs import NUMBERS, arguments_of, by_program, tensors_of
from graphdiff.verify.interpreter import Answer, Call, failure_of, run_in_interpreter
from graphdiff.verify.model import Check, KernelBits

NAME = "kernels' bits"
PACKAGE = "patch_kernels"
"""What the folder `kernels/` is imported as in the child: it stands alone."""
HOW = ("the engine's side is its captured program in float32, for captured text is not executed; the kernels run in Triton's interpreter, "
       "row sums in one order on both sides; -0 counts as 0, any NaN as any other")


def check_bits_of_kernels(folder: Path, manifest: dict[str, Any], engine: Capture) -> tuple[Check, list[KernelBits]]:
    """Every operator of `kernels/` on random numbers, ties, subnormals, inf and nan, large numbers and zeros."""
    names = list(manifest["kernels"]["operators"])
    if not names:
        return Check(name=NAME, ok=None, detail="not compared: the patch has no kernels"), []
    if importlib.util.find_spec("triton") is None:
        return _none(names, "triton is not installed")
    try:
        files = {f.name: f.read_text("utf-8") for f in sorted((folder / "kernels").glob("*.py"))}
        regions = _regions(engine, names)
        rows = _compared(files, engine, regions, names)
    except (RuntimeError, OSError, subprocess.TimeoutExpired, GraphdiffError) as error:
        return _none(names, f"the interpreter could not run: {failure_of(error)}")
    different = [k.kernel for k in rows if k.equal is False]
    compared = [k for k in rows if k.equal is not None]
    ok = False if different else True if compared else None
    detail = (f"{', '.join(different)}: not the engine's bits" if different else
              f"{len(compared)} of {len(rows)} kernels have the engine's bits on {sum(k.elements for k in compared):,} elements of {len(NUMBERS)} kinds of input"
              if compared else "not compared: no kernel has a region in this capture") + f" ({HOW})"
    return Check(name=NAME, ok=ok, detail=detail, numbers={"differing": {k.kernel: sum(k.differing.values()) for k in compared}}), rows


def _none(names: list[str], why: str) -> tuple[Check, list[KernelBits]]:
    return Check(name=NAME, ok=None, detail=f"not compared: {why}"), [KernelBits(kernel=n, equal=None, detail=why) for n in names]


def _regions(engine: Capture, names: list[str]) -> dict[str, tuple[RegionIR, EmittedRegion]]:
    """The first region of each name, and the signature of its operator."""
    regions, _ = extract_regions(engine.program, len(engine.header.probe.tokens))
    found: dict[str, tuple[RegionIR, EmittedRegion]] = {}
    for region in regions:
        if region.name in names and region.name not in found:
            found[region.name] = (region, emit_region(region, namespace=PACKAGE))
    return found


def _compared(files: dict[str, str], engine: Capture, regions: dict[str, tuple[RegionIR, EmittedRegion]], names: list[str]) -> list[KernelBits]:
    calls, wanted = [], []
    for name, (region, emitted) in regions.items():
        for kind in NUMBERS:
            tensors, pins = tensors_of(region, engine.program, kind)
            calls.append(Call(PACKAGE, name, arguments_of(emitted, tensors)))
            with np.errstate(all="ignore"):
                wanted.append((name, kind, by_program(region, engine.program, pins)))
    answers = run_in_interpreter({PACKAGE: files}, calls, keep_errors=True) if calls else []
    found = {name: [(kind, answer, numbers) for (n, kind, numbers), answer in zip(wanted, answers) if n == name] for name in regions}
    return [_row(n, regions[n][0], found[n]) if n in regions else KernelBits(kernel=n, equal=None, detail="the engine's capture has no such region")
            for n in names]


def _row(name: str, region: RegionIR, found: list[tuple[str, Answer, list[np.ndarray]]]) -> KernelBits:
    mirrors = [kernel for _, kernel in region.kernels]
    if error := next((answer.error for _, answer, _ in found if answer.error), ""):
        return KernelBits(kernel=name, mirrors=mirrors, equal=False, detail=f"it fails: {error}")
    apart = {kind: sum(differing(o, w) for o, w in zip(answer.outputs, numbers)) for kind, answer, numbers in found}
    elements = sum(w.size for *_, numbers in found for w in numbers)
    bad = {kind: n for kind, n in apart.items() if n}
    detail = (f"{sum(bad.values()):,} of {elements:,} elements differ ({', '.join(f'{kind}: {n:,}' for kind, n in bad.items())})" if bad
              else f"{elements:,} elements") + f"; mirrors {', '.join(mirrors)}"
    return KernelBits(kernel=name, mirrors=mirrors, equal=not bad, detail=detail, elements=elements, differing=apart)


def differing(tensor: Any, wanted: np.ndarray) -> int:
    """Elements whose bits differ; any NaN equals any NaN, -0 equals 0 (Triton's `-x` is 0 - x, the program's a sign)."""
    got = tensor.detach().float().numpy().reshape(-1)
    if got.size != wanted.size:
        return max(got.size, wanted.size)
    return int(((got != wanted) & ~(np.isnan(got) & np.isnan(wanted))).sum())
