"""Mutants of an engine capture: one rounding planted after one intermediate of one generated kernel."""

import re
from dataclasses import dataclass, replace

ARITHMETIC = re.compile(r"tmp\d+ [-+*] tmp\d+|\(tmp\d+ / tmp\d+\)|libdevice|tl\.sum")
LINE = r"(?m)^( +{} = )(.*)$"


@dataclass(frozen=True)
class Mutant:
    """A piece, a kernel of it, the intermediate that is rounded and how it is computed."""

    piece: str
    kernel: str
    tmp: str
    text: str


def kernels_of(text: str) -> dict[str, tuple[int, int]]:
    """Kernel name -> where its source stands in a piece's output code."""
    return {m[1]: (m.start(), m.end()) for m in re.finditer(r"async_compile\.triton\('(\w+)', '''.*?'''", text, re.S)}


def mutants_of(raw, program) -> list[Mutant]:
    """Every intermediate that arithmetic forms, of every kernel; `program` tells floats from index arithmetic."""
    floats = {(site.kernel, site.name) for site in program.sites}
    found = []
    for piece, (first, *_) in raw.pieces.items():
        for kernel, (start, end) in kernels_of(first.code.text).items():
            for m in re.finditer(r"(?m)^ +(tmp\d+) = (.*)$", first.code.text[start:end]):
                if ARITHMETIC.search(m[2]) and (kernel, m[1]) in floats:
                    found.append(Mutant(piece, kernel, m[1], m[2]))
    return found


def planted(raw, mutant: Mutant):
    """The raw capture with the mutant's rounding in its text."""
    first, *others = raw.pieces[mutant.piece]
    text = first.code.text
    start, end = kernels_of(text)[mutant.kernel]
    changed, count = re.subn(LINE.format(mutant.tmp), r"\1(\2).to(tl.bfloat16).to(tl.float32)", text[start:end])
    assert count >= 1, mutant
    code = replace(first.code, text=text[:start] + changed + text[end:])
    return replace(raw, pieces={**raw.pieces, mutant.piece: [replace(first, code=code), *others]})
