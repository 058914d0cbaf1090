"""Holds a program against machine code: is every rounding that it states an instruction?

A kernel is compiled as it is, without any of its roundings, and with each one alone. How much an instruction is repeated
for a thread's elements then needs no knowledge of layouts: what each rounding takes alone must add up to what all take
together, copies apart: rounding numbers that the format holds already changes nothing, and takes an instruction or none.
What else is missing, and is there without contraction, was deleted by it; leaving out one rounding more shows which.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from graphdiff.errors import GraphdiffError
from graphdiff.hardware.compile import ASSEMBLERS, Job, Made, compiled, stop_running
from graphdiff.hardware.grammar import Refused
from graphdiff.hardware.kernel import Kernel, Place, groups, job, places, read_kernel
from graphdiff.hardware.machine import ptx_rounds, resources, sass_fused, sass_rounds
from graphdiff.lower.inductor.output_code import OutputCode
from graphdiff.program import Program
from graphdiff.program.dtypes import FORMATS, contains, round_to
from graphdiff.report.model import MachineKernel, MachineRounding
from graphdiff.store import Capture

FIX = ("spell it so that it cannot be contracted: inline asm `cvt.rn.bf16x2.f32`, or round to nearest even on the bits; "
       "or compile with enable_fp_fusion=False (Inductor: emulate_precision_casts), which changes the FP32 arithmetic too")
AT_ONCE = 2
MOST_PLACES = 64


def check_capture(capture: Capture, progress: Callable[[str], None] = lambda line: None, *, target: str = "") -> list[MachineKernel]:
    """Every Triton kernel of a capture, those of one text once. Raises GraphdiffError where nothing can be compiled."""
    target = target or capture.header.target
    capability = capability_of(target)
    found: dict[tuple, tuple[Kernel, MachineKernel, Stated]] = {}
    made: list[MachineKernel] = []
    for piece, text in capture.sources.items():
        code = _output_code(piece, text)
        for name in code.sources if code else ():
            one = MachineKernel(kernel=name, pieces=[piece], target=target)
            try:
                kernel = read_kernel(code, name)
            except Refused as refused:
                one.reason = str(refused)
                made.append(one)
                continue
            said = stated(capture.program, name, piece)
            key = (kernel.text, *sorted(kernel.signature.items()), kernel.fp_fusion, said.relative(kernel.shift))
            if key in found:
                found[key][1].pieces.append(piece)
            else:
                found[key] = kernel, one, said
                made.append(one)
    wanted = list(found.values())
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = [pool.submit(check_kernel, kernel, one, said, capability) for kernel, one, said in wanted]
        try:
            for n, answer in enumerate(done):
                answer.result()
                progress(f"compiling kernels for {target}: {n + 1} of {len(wanted)}")
        except BaseException:  # Ctrl-C: none of the others is waited for
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(answer.done() for answer in done):
                stop_running()
                time.sleep(0.02)
            raise
    return made


def capability_of(target: str) -> int:
    match = re.fullmatch(r"cuda:(\d+)", target)
    if match is None:
        raise GraphdiffError("--ptx needs kernels for a GPU", where=f"target {target or 'unknown'}", fix="give a capture made for cuda:90")
    if int(match[1]) not in ASSEMBLERS:
        raise GraphdiffError(f"no assembler here for {target}", fix=f"targets: {', '.join(f'cuda:{c}' for c in ASSEMBLERS)}")
    import importlib.util

    if importlib.util.find_spec("triton") is None:
        raise GraphdiffError("--ptx needs Triton", fix="pip install triton==3.7.1")
    return int(match[1])


def _output_code(piece: str, text: str) -> OutputCode | None:
    try:
        return OutputCode(text, piece)
    except (GraphdiffError, RecursionError, MemoryError, ValueError):
        return None


@dataclass(frozen=True)
class Stated:
    """What the program says of one kernel: the lines that round, and of those the ones that only round what is already so."""

    rounds: frozenset[int]
    exact: frozenset[int]

    def relative(self, shift: int) -> tuple[tuple[int, bool], ...]:
        """The same in lines of the kernel's own text."""
        return tuple(sorted((line - shift, line in self.exact) for line in self.rounds))


def stated(program: Program, kernel: str, piece: str) -> Stated:
    exact: dict[int, bool] = defaultdict(lambda: True)
    for n, node in enumerate(program.nodes):
        if node.op == "round":
            site = program.site(n)
            if site.kernel == kernel and site.code == piece:
                exact[site.code_line] &= all(_holds(program, m, node.dtype) for m in node.operands[0].nodes)
    return Stated(frozenset(exact), frozenset(line for line, e in exact.items() if e))


def _holds(program: Program, n: int, dtype: str, depth: int = 0) -> bool:
    """True if a node's numbers are in a format by how it is made: loads of it, and what chooses or signs such (max, neg). A
    constant is rounded by the compiler; one that others are held against (max(x, 0.3)) must have the format."""
    node = program.nodes[n]
    if node.op in ("leaf", "round"):
        return node.dtype == dtype or node.dtype in FORMATS and contains(dtype, node.dtype)
    if (node.op == "embedding" or node.kind == "exact") and depth < 20:
        return all(_holds(program, m, dtype, depth + 1) for o in node.operands for m in o.nodes)
    return node.op == "const" and not node.dynamic and (depth == 0 or float(round_to(np.float32(node.attrs["value"]), dtype)) == node.attrs["value"])


# ---- one kernel
def check_kernel(kernel: Kernel, into: MachineKernel, said: Stated | None, capability: int, *, seconds: float = 180) -> None:
    """Fill in the verdict. `said`: what the program states; None takes the kernel's text as the statement."""
    into.verdict = "could not tell"
    try:
        found = groups(places(kernel))
        if len(found) > MOST_PLACES:
            into.reason = f"{len(found)} values are rounded, more than {MOST_PLACES}"
            return
        for whole in (False, True):  # loops may be unrolled in one text and not in another: then without loops
            if _measured(kernel, into, found, said, capability, whole, seconds):
                return
    except Refused as refused:
        into.verdict, into.reason = "not checked", str(refused)
    except (RecursionError, MemoryError):
        into.verdict, into.reason = "not checked", "a kernel nested too deep"


def _measured(kernel: Kernel, into: MachineKernel, found: list[list[Place]], said: Stated | None, capability: int, whole: bool, seconds: float) -> bool:
    """True if the verdict is final."""
    jobs = [job(kernel, whole=whole, sass=True), job(kernel, [], whole=whole, sass=True)]
    alone = found if len(found) > 1 else []
    made = compiled([*jobs, *(job(kernel, g, whole=whole, sass=True) for g in alone)], capability, seconds=seconds)
    if error := next((m.error for m in made if m.error), ""):
        into.verdict, into.reason = "not checked", error
        return True
    everything, nothing = _count(made[0]), _count(made[1])
    single = [_count(m) - nothing for m in made[2:]] or [everything - nothing]
    into.ptx, into.sass = dict(sorted(ptx_rounds(made[0].ptx).items())), dict(sorted(sass_rounds(made[0].sass).items()))
    into.registers, into.spills, into.stack = resources(made[0].log)
    into.blocks = {**{k: int(v) for k, v in jobs[0].constants.items() if "BLOCK" in k}, "warps": jobs[0].warps}
    into.roundings = [_rounding(g, n, said) for g, n in zip(found, single)]
    into.reason = _unexplained(into, found, said, nothing)
    if into.reason:
        return whole
    if everything > sum(single):
        into.reason = f"together the roundings take {everything} elements per thread, one by one {sum(single)}"
        return whole
    real = [i for i, r in enumerate(into.roundings) if r.state == "there"]
    wanted = sum(single[i] for i in real)
    if everything < sum(single) and (everything < wanted or len(real) < len(found)):
        done = _without_copies(kernel, into, found, real, everything, capability, whole, seconds)
        if done is not None:
            return done
    if sass_fused(made[0].sass) and not any(name.startswith("fma") for name in into.ptx):
        into.reason = "ptxas contracts a product and a sum in a 16-bit format, which may delete the product's rounding"
        return whole
    assembled = sum(into.sass.values())
    if assembled != everything and not _assembled_adds_up(made, into):
        into.reason = f"PTX rounds {everything} elements per thread, SASS {assembled}"
        return whole
    into.verdict = "agrees"
    return True


def _assembled_adds_up(made: list[Made], into: MachineKernel) -> bool:
    """Whether SASS takes as much for all roundings as for each alone; those of numbers that have the format already may take
    less. It counts arithmetic of pairs of which PTX, and the program, may use one half only; conversions have no such doubt."""
    if all(name.startswith("F2F") for name in into.sass):
        return False
    together, none, *single = (sum(sass_rounds(m.sass).values()) for m in made)
    copies = sum(n for n, r in zip(single, into.roundings) if r.state == "copy")
    return together > 0 and none == 0 and (not single or sum(single) - copies <= together <= sum(single))


def _count(made: Made) -> int:
    return sum(ptx_rounds(made.ptx).values())


def _rounding(group: list[Place], elements: int, said: Stated | None) -> MachineRounding:
    """What rounds numbers that the format holds is a copy, also where the compiler does not see it and converts."""
    lines = sorted({line for p in group for line in p.lines})
    stated_lines = set(lines) & said.rounds if said else set(lines)
    only_exact = bool(said and stated_lines) and stated_lines <= said.exact
    state = "copy" if only_exact else "there" if elements > 0 else "unknown" if stated_lines else "copy"
    return MachineRounding(names=sorted({p.name for p in group}), lines=lines, dtype=group[0].dtype, elements=elements, state=state)


def _unexplained(into: MachineKernel, found: list[list[Place]], said: Stated | None, nothing: int) -> str:
    if nothing:
        return f"{nothing} elements per thread are rounded by arithmetic in a 16-bit format, which is not told apart"
    if lost := [r for r in into.roundings if r.state == "unknown"]:
        return f"the machine code converts nothing at line {lost[0].lines[0]} ({lost[0].names[0]})"
    lines = {line for g in found for p in g for line in p.lines}
    if said and (other := sorted(said.rounds - lines - said.exact)):
        return f"the program rounds at line {other[0]}, where the kernel's text has no conversion or store"
    return ""


def _without_copies(kernel: Kernel, into: MachineKernel, found: list[list[Place]], real: list[int], everything: int, capability: int, whole: bool,
                    seconds: float) -> bool | None:
    """Fewer elements are rounded together than one by one. That is well where only copies are missing: alone, a store of
    rounded numbers rounds, and together it moves them. What changes numbers must be there without the copies too.
    None: it is."""
    wanted = sum(into.roundings[i].elements for i in real)
    suspects = [i for i in real if not any(p.pointer for p in found[i])]  # memory has its format

    def only(kept: list[int], **options: bool) -> Job:
        return job(kernel, [p for i in kept for p in found[i]], whole=whole, **options)

    made = compiled([only(real), only(real, fp_fusion=False)], capability, seconds=seconds)
    if error := next((m.error for m in made if m.error), ""):
        into.reason = error
        return True
    there, uncontracted = map(_count, made)
    if everything >= wanted and there == wanted:
        if not any(name.startswith("fma") for name in into.ptx):
            return None
        into.reason = "a product and a sum are contracted in a 16-bit format, among conversions of numbers that have it already"
        return whole
    missing = wanted - min(everything, there)
    into.reason = f"of {wanted} elements per thread {missing} are not rounded"
    if not kernel.fp_fusion or uncontracted != wanted or max(everything, there) >= wanted:
        into.reason += ", and contraction does not show as the cause" if kernel.fp_fusion else ", though the kernel is compiled with enable_fp_fusion=False"
        return whole
    left = compiled([only([j for j in real if j != i]) for i in suspects], capability, seconds=seconds)
    if error := next((m.error for m in left if m.error), ""):
        into.reason = error
        return True
    gone = [i for i, m in zip(suspects, left) if there - _count(m) < into.roundings[i].elements]
    if sum(into.roundings[i].elements for i in gone) < missing:
        into.reason += ", and it does not show which"
        return whole
    for i in gone:
        into.roundings[i].state, into.roundings[i].fix = "deleted", FIX
    names = ", ".join(f"{into.roundings[i].names[0]} (line {into.roundings[i].lines[0]})" for i in gone)
    native = ", ".join(k for k in into.ptx if not k.startswith("cvt")) or "no conversion of its own"
    into.verdict = "rounding deleted"
    into.reason = f"contraction deletes the rounding of {names}: {native} rounds once; with enable_fp_fusion=False it stays"
    return True
