"""Kernels written for the hardware proof, wrapped as Inductor's output code."""

from __future__ import annotations

from graphdiff.hardware.check import capability_of, check_kernel
from graphdiff.hardware.kernel import read_kernel
from graphdiff.lower.inductor.output_code import OutputCode
from graphdiff.report.model import MachineKernel

BODY = """    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + xindex, xmask).to(tl.float32)
    tmp1 = tl.load(in_ptr1 + xindex, xmask).to(tl.float32)
    tmp2 = tl.load(in_ptr2 + xindex, xmask).to(tl.float32)
"""
MIDDLE = BODY + """    tmp3 = tmp0 * tmp1
    tmp4 = tmp3.to(tl.bfloat16).to(tl.float32)
    tmp5 = tmp4 + tmp2
    tl.store(out_ptr0 + xindex, tmp5, xmask)
"""
HEAD = "def kernel(in_ptr0, in_ptr1, in_ptr2, out_ptr0, xnumel, XBLOCK : tl.constexpr):\n"


def output_code(body: str = MIDDLE, *, head: str = HEAD, fp_fusion: bool = True, before: str = "", out: str = "*bf16") -> OutputCode:
    signature = {"in_ptr0": "*bf16", "in_ptr1": "*bf16", "in_ptr2": "*bf16", "out_ptr0": out, "xnumel": "i32", "XBLOCK": "constexpr"}
    kernel = (f"import triton\n{before}\n@triton_heuristics.pointwise(\n    size_hints={{'x': 4096}},\n    triton_meta={{'signature': {signature!r}, "
              f"'constants': {{}}, 'enable_fp_fusion': {fp_fusion}, 'configs': [{{(0,): [['tt.divisibility', 16]], (3,): [['tt.divisibility', 16]]}}]}},\n)\n"
              f"@triton.jit\n{head}{body}")
    return OutputCode(f"kernel = async_compile.triton('kernel', '''\n{kernel}''', device_str='cuda')\n\ndef call(args):\n    return ()\n", "piece")


def checked(code: OutputCode, target: str = "cuda:90", **options) -> MachineKernel:
    made = MachineKernel(kernel="kernel", pieces=["piece"], target=target)
    check_kernel(read_kernel(code, "kernel"), made, None, capability_of(target), **options)
    return made
