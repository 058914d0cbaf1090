"""Every libdevice function that a lowering knows runs in the repaired interpreter, and both give the same numbers."""

import inspect

import numpy as np
import pytest

pytest.importorskip("torch")
cuda = pytest.importorskip("triton.language.extra.cuda.libdevice")

from triton_interpreter import Launch, run_launches  # noqa: E402

from graphdiff.lower.inductor import Input, program_from_output_code  # noqa: E402
from graphdiff.lower.inductor.triton_calls import CALLS  # noqa: E402
from graphdiff.program.evaluate import Evaluation  # noqa: E402

FLOAT64_ONLY = {"isfinited"}
NAMES = sorted(n for n in CALLS if hasattr(cuda, n) and n not in FLOAT64_ONLY)
ONE = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.3, -2.5, 7.25, -0.999, 1e-30, 3e20, -3e20, 88.0, -100.0], np.float32)
GRID = np.array(np.meshgrid(ONE, ONE, [1.5, -0.0], indexing="ij"), np.float32).reshape(3, -1)
POWERS = np.tile(np.arange(-16, 16, dtype=np.int32), 16)

KERNEL = """
import triton
import triton.language as tl
from torch._inductor.runtime.triton_helpers import libdevice

@triton_heuristics.pointwise(
    triton_meta={{'signature': {{'in_ptr0': '*fp32', 'in_ptr1': '*fp32', 'in_ptr2': '*fp32', 'in_ptr3': '*i32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'XBLOCK': 'constexpr'}}}},
    inductor_meta={{'grid_type': 'Grid1D'}},
)
@triton.jit
def k(in_ptr0, in_ptr1, in_ptr2, in_ptr3, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tl.load(in_ptr1 + (x0), xmask)
    tmp2 = tl.load(in_ptr2 + (x0), xmask)
    tmp3 = tl.load(in_ptr3 + (x0), xmask)
    tmp4 = libdevice.{name}({arguments}).to(tl.float32)
    tl.store(out_ptr0 + (x0), tmp4, xmask)
"""
CALL = """
k = async_compile.triton('k', '''{kernel}''', device_str='cuda')

def call(args):
    a, b, c, d = args
    buf0 = empty_strided_cuda((512, ), (1, ), torch.float32)
    k.run(a, b, c, d, buf0, 512, stream=0)
    return (buf0, )
"""


def source(name):
    count = len([p for p in inspect.signature(getattr(cuda, name)).parameters if not p.startswith("_")])
    return KERNEL.format(name=name, arguments="tmp0, tmp3" if name == "ldexp" else ", ".join(f"tmp{i}" for i in range(count)))


@pytest.fixture(scope="module")
def interpreted():
    """Per function, what the interpreter gave: numbers, or a text that says why it gave none."""
    launches = [Launch("k", source(n), [*GRID, POWERS, np.zeros(512, np.float32), 512], ["float32"] * 3 + ["int32", "float32", ""], {"XBLOCK": 512}, (1,))
                for n in NAMES]
    return {n: answer if isinstance(answer, str) else answer[4] for n, answer in zip(NAMES, run_launches(launches, seconds=60))}


def lowered(name):
    inputs = [*(Input(n, x, "float32") for n, x in zip("abc", GRID)), Input("d", POWERS, "int32")]
    program, bits = program_from_output_code(CALL.format(kernel=source(name)), inputs, name=name)
    return Evaluation(program, bits).output(0)


def test_the_table_has_what_is_there():
    assert {"exp", "fma", "hypot", "ldexp", "mul_rn", "signbit", "copysign", "erfinv", "finitef"} <= set(NAMES) and len(NAMES) > 40
    assert FLOAT64_ONLY <= set(CALLS)


@pytest.mark.parametrize("name", NAMES)
def test_both_give_the_same_numbers(name, interpreted):
    found = interpreted[name]
    assert not isinstance(found, str), found
    ours = lowered(name)
    wrong = (ours != found) & ~(np.isnan(ours) & np.isnan(found)) | (np.signbit(ours) != np.signbit(found)) & (ours == 0)
    assert not wrong.any(), (GRID[:, wrong][:, :4], ours[wrong][:4], found[wrong][:4])
