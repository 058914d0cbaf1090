"""Machine code as counts: what rounds to a low format, or computes in one, in PTX and in SASS; what ptxas says it needs."""

from __future__ import annotations

import re
from collections import Counter

LOW = r"(?:bf16x2|bf16|f16x2|f16|e4m3x2|e5m2x2)"
CONVERT = re.compile(rf"cvt\.rn(?:\.\w+)*?\.({LOW})\.f32$")
NATIVE = re.compile(rf"(?:add|mul|sub|fma)(?:\.(?!f32)\w+)*?\.({LOW})$")
"""Not fma.rn.f32.bf16 (sm_100), which reads low numbers and gives FP32."""
INSTRUCTION = re.compile(r"[\s{]*(?:@!?%?\w+\s+)?([a-z][a-z0-9_.]*)\s+(.*)")
SASS_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?);")
SASS_CONVERT = re.compile(r"F2FP(?:\.\w+)*\.PACK_AB")
"""F2FP.BF16.F32.PACK_AB, on sm_80 F2FP.BF16.PACK_AB; UNPACK only widens."""
SASS_SINGLE = re.compile(r"F2F(?:\.\w+)*?\.(?:BF16|F16)\.F32(?:\.\w+)*")
"""F2F.BF16.F32 converts one number, where ptxas finds no pair."""
SASS_NATIVE = re.compile(r"(?:HADD2|HMUL2|HFMA2)(?:\.\w+)*")
LITERAL = re.compile(r"0[fFdDxX][0-9a-fA-F]+$|-?\d+$")


def ptx_rounds(ptx: str) -> Counter[str]:
    """instruction -> elements that it rounds, over the text: a packed one counts two unless one of them is a constant."""
    found: Counter[str] = Counter()
    for statement in (s for line in ptx.splitlines() for s in line.split("//")[0].split(";")):
        match = INSTRUCTION.match(statement)
        if match is None:
            continue
        name, operands = match[1], [o.strip() for o in match[2].split(",")]
        if low := CONVERT.match(name) or NATIVE.match(name):
            packed = low[1].endswith("x2")
            constants = sum(bool(LITERAL.match(o)) for o in operands[1:3]) if packed and name.startswith("cvt") else 0
            found[name] += max(1, 2 - constants) if packed else 1
    return found


def sass_rounds(sass: str) -> Counter[str]:
    """The same of the assembled code. HFMA2 with RZ as a factor only moves a constant."""
    found: Counter[str] = Counter()
    for line in sass.splitlines():
        match = SASS_INSTRUCTION.match(line)
        if match is None:
            continue
        name, operands = match[1], [o.strip().lstrip("-") for o in match[2].split(",")]
        if SASS_CONVERT.match(name):
            found[name] += 2 - any(o.split(".")[0] == "RZ" for o in operands[1:3])
        elif SASS_SINGLE.fullmatch(name):
            found[name] += 1
        elif SASS_NATIVE.fullmatch(name) and not any(o.split(".")[0] == "RZ" for o in operands[1:3]):
            found[name] += 1 if any("H0_H0" in o or "H1_H1" in o for o in operands[:1]) else 2
    return found


def sass_fused(sass: str) -> int:
    """Instructions that multiply and add in a low format: HFMA2, unless by 1 or with 0."""
    found = 0
    for line in sass.splitlines():
        match = SASS_INSTRUCTION.match(line)
        if match and match[1].startswith("HFMA2") and ".F32" not in match[1]:
            operands = [o.strip().lstrip("-") for o in match[2].split(",")]
            found += not any(o.split(".")[0] == "RZ" or o == "1" for o in operands[1:])
    return found


def resources(log: str) -> tuple[int | None, int | None, int | None]:
    """(registers, bytes of spill loads and stores, bytes of stack) from `ptxas -v`."""
    used, stack = re.search(r"Used (\d+) registers", log), re.search(r"(\d+) bytes stack frame", log)
    spills = [int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", log)]
    return int(used[1]) if used else None, sum(spills) if spills else None, int(stack[1]) if stack else None
