"""Kernels of an emitted package compiled for sm_90 with no GPU: PTX, registers, spills."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Compiled:
    ptx: str
    registers: int
    spills: int

    @property
    def counts(self) -> Counter:
        """How often each instruction that rounds to, or computes in, a 16-bit format occurs; fma, mul, add of FP32 too."""
        found: Counter = Counter()
        for line in self.ptx.splitlines():
            op = re.match(r"\s*(?:@\S+\s+)?([a-z][a-z0-9_.]*)\s", line)
            if op and re.match(r"(cvt\.rn.*\.(bf16|f16)|(add|mul|sub|fma|neg)\.\S*(bf16|f16)|(fma|mul|add|sub|div|rsqrt|ex2)\.\S*f32)", op.group(1)):
                found[op.group(1)] += 1
        return found

    @property
    def native_low(self) -> int:
        """Arithmetic carried out in a 16-bit format."""
        return sum(n for op, n in self.counts.items() if re.match(r"(add|mul|sub|fma|neg)\.\S*(bf16|f16)", op))


def compile_sm90(function: Any, types: dict[str, str], constants: dict[str, Any], warps: int) -> Compiled:
    """function: the jitted kernel. Strides of lanes are 1, other strides multiples of 16, pointers aligned."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource

    signature, values, attributes = {}, {}, {}
    for place, name in enumerate(function.arg_names):
        if name in constants:
            signature[name], values[(place,)] = "constexpr", constants[name]
        elif name.endswith("_l") and name in types:
            signature[name], values[(place,)] = "constexpr", 1
        else:
            signature[name] = types.get(name, "i32")
            if name in types:
                attributes[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(function, signature, values, attributes)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})
    registers, spills = _resources(made.asm["ptx"])
    return Compiled(made.asm["ptx"], registers, spills)


def _resources(ptx: str) -> tuple[int, int]:
    import triton.backends.nvidia as nvidia

    folder = Path(os.path.dirname(nvidia.__file__), "bin")
    assembler = next(p for p in (folder / "ptxas", folder / "ptxas-blackwell") if p.exists())
    with tempfile.TemporaryDirectory() as work:
        file = Path(work, "kernel.ptx")
        file.write_text(ptx)
        done = subprocess.run([str(assembler), "-v", "--gpu-name=sm_90a", str(file), "-o", str(Path(work, "kernel.cubin"))], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    text = done.stderr + done.stdout
    used = int(re.search(r"Used (\d+) registers", text).group(1))
    return used, sum(int(n) for n in re.findall(r"(\d+) bytes spill (?:stores|loads)", text))
