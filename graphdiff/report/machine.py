"""Machine code in words: rows of `show --ptx` and the section of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from graphdiff.report.model import MachineKernel, Report
from graphdiff.report.words import clean, plural


def rows(kernels: Sequence[MachineKernel]) -> list[dict[str, Any]]:
    """One row per kernel, for a table; `detail` is everything else of it."""
    return [
        {
            "kernel": k.kernel,
            "pieces": list(k.pieces),
            "verdict": k.verdict,
            "rounds": _rounds(k),
            "registers": k.registers,
            "spills": k.spills,
            "stack": k.stack,
            "reason": k.reason,
            "target": k.target,
            "ptx": dict(k.ptx),
            "sass": dict(k.sass),
            "blocks": dict(k.blocks),
            "roundings": [
                {"names": r.names, "lines": r.lines, "dtype": r.dtype, "elements": r.elements, "state": r.state, "fix": r.fix}
                for r in k.roundings
            ],
        }
        for k in kernels
    ]


def _rounds(kernel: MachineKernel) -> str:
    """`2 there, 1 copy`."""
    states = [r.state for r in kernel.roundings]
    return ", ".join(f"{states.count(s)} {s}" for s in ("there", "copy", "deleted", "unknown") if s in states)


def summary(kernels: Sequence[MachineKernel]) -> str:
    """`9 kernels for cuda:90: 9 agree; at most 56 registers, no spills`."""
    verdicts = [k.verdict for k in kernels]
    words = {"agrees": "agree", "rounding deleted": "lose a rounding", "could not tell": "could not be told", "not checked": "not checked"}
    parts = ", ".join(f"{verdicts.count(v)} {word}" for v, word in words.items() if v in verdicts)
    registers = max((k.registers for k in kernels if k.registers is not None), default=None)
    spills = sum(k.spills or 0 for k in kernels)
    needs = "" if registers is None else f"; at most {registers} registers, {f'{spills} bytes of spills' if spills else 'no spills'}"
    target = f" for {clean(kernels[0].target)}" if kernels else ""
    return f"{plural(len(kernels), 'kernel')}{target}: {parts or 'nothing to check'}{needs}"


def lines(report: Report) -> list[str]:
    """The section of a report: nothing unless --ptx was given."""
    return [] if report.hardware is None else [summary(report.hardware), *findings(report.hardware)]


def findings(kernels: Sequence[MachineKernel]) -> Iterator[str]:
    """A line for every kernel that does not agree, with what to do."""
    for k in kernels:
        if k.verdict == "agrees":
            continue
        fix = next((r.fix for r in k.roundings if r.fix), "")
        yield clean(f"{k.kernel} ({', '.join(k.pieces)}): {k.verdict}: {k.reason}{'; ' + fix if fix else ''}", 700)
