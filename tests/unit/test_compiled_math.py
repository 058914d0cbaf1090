"""Functions of compiled code, for this machine and for CUDA: divisions rounded down, conversions to integers, math."""

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from compiled_functions import assert_equal, assert_near, cuda, native  # noqa: E402
from eager_rules import T, inf, nan, real  # noqa: E402

from graphdiff.errors import GraphdiffError  # noqa: E402
from graphdiff.program.ops import UNARY  # noqa: E402

SPECIAL = T([nan, inf, -inf, 0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 0.3, 1e20, -1e20, 3e9, -3e9, 1e-30, 300.7])
A, B = SPECIAL[:, None].expand(16, 16).contiguous(), SPECIAL[None].expand(16, 16).contiguous()
X, Y = real(40, 33), real(40, 33, seed=1)


# ---- this machine
@pytest.mark.parametrize("function", [lambda a, b: torch.div(a * 10, b, rounding_mode="floor"), lambda a, b: a // b, lambda a, b: a // 0.3,
                                      lambda a, b: torch.div(a, b, rounding_mode="trunc")])
def test_divisions_that_are_rounded(function):
    assert_equal(native(function, X, Y)[1])
    assert_equal(native(function, A, B)[1])
    assert_equal(native(function, X.bfloat16(), Y.bfloat16())[1])


WIDE = T([nan, inf, -inf, 3e9, -3e9, 2147483648.0, -2147483648.0, 2147483520.0, 1e20, 0.3, 127.5, 128.5, -128.5, -129.5, 255.5, 256.5, 300.7, -300.7, -1.5,
          32767.5, 32768.5, -32769.5, 65536.5, 70000.5, -70000.5, 1e6, -1e6, 5e9, -5e9, 1e19, -1e19, 2.0])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("given", [WIDE, WIDE.bfloat16(), WIDE[:3], WIDE[3:14]], ids=["full", "bfloat16", "tail of 3", "tail of 11"])
def test_floats_that_no_integer_holds(dtype, given):
    assert_equal(native(lambda a: a.to(dtype).float(), given)[1])


def test_int8_holds_or_is_refused():
    """Out of range a vector is held at the ends, single numbers keep their low bits, and the loop's data does not tell which it is."""
    inside = WIDE[(WIDE > -129) & (WIDE < 128)]
    assert_equal(native(lambda a: a.to(torch.int8).float(), inside)[1])
    for one in (128.0, -129.0, nan):
        with pytest.raises(GraphdiffError, match="no lowering for a conversion to int8 of a number out of its range"):
            native(lambda a: a.to(torch.int8).float(), torch.full((3,), one))


def test_conversions_without_vectors():
    from torch._inductor import config

    with config.patch({"cpp.simdlen": 1}):
        for dtype in (torch.uint8, torch.int16, torch.int32, torch.int64):
            assert_equal(native(lambda a: a.to(dtype).float(), WIDE)[1])


MATH = {"erfc": lambda a, b: torch.erfc(a), "erfinv": lambda a, b: torch.erfinv(a / 4), "lgamma": lambda a, b: torch.lgamma(a),
        "hypot": torch.hypot, "nextafter": torch.nextafter, "ldexp": lambda a, b: torch.ldexp(a, T(-3)),
        "ldexp far": lambda a, b: torch.ldexp(a, torch.arange(-120, -120 + 7 * a.shape[1], 7))}


@pytest.mark.parametrize("name", MATH)
def test_math_of_this_machine(name):
    program, pairs = native(MATH[name], X.bfloat16(), Y.bfloat16())
    assert_equal(pairs, flips=0.002)
    assert_near(native(MATH[name], A, B)[1], "float32")
    assert_near(native(MATH[name], X, Y)[1], "float32")


@pytest.mark.parametrize("function", [torch.digamma, torch.i0, lambda a: torch.frexp(a)[0]])
def test_math_that_stays_refused(function):
    for compiled in (native, cuda):
        with pytest.raises(GraphdiffError, match="no lowering for .*(digamma|i0|frexp)"):
            compiled(function, X)


# ---- CUDA
@pytest.mark.parametrize("name", MATH)
def test_math_of_cuda(name):
    assert_near(cuda(MATH[name], A, B)[1], "float32")
    assert_near(cuda(MATH[name], X, Y)[1], "float32")
    if name != "nextafter":  # in BF16 eager torch takes BF16's next number, the kernel float32's
        assert_near(cuda(MATH[name], X.bfloat16(), Y.bfloat16())[1])


def test_minus_zero_is_written_as_bits():
    function = lambda x: (torch.where(x > 0, x, -0.0), torch.where(x > 0, x, -0.0) * x)  # noqa: E731
    program, pairs, code = cuda(function, X)
    assert "0x80000000" in code and "bitcast=True" in code
    assert_equal(pairs, 2)
    assert np.signbit(pairs[0][0]).any() and "opaque" not in {n.op for n in program.nodes}
    assert_equal(cuda(function, X.bfloat16())[1], 2)


# ---- the definitions
def test_definitions_against_torch_in_float64():
    x = np.concatenate([np.linspace(-8, 8, 801), [1e-30, 1e-9, -3e-7, 9e-6, 1.1e-5, 26.0, -27.0, 0.0, -0.0, inf, -inf, nan, 171.5, -170.5, 1e5]])
    t = torch.from_numpy(x)
    for name, argument in (("erfc", t), ("lgamma", t), ("erfinv", torch.tanh(t)), ("erfinv", t / 8), ("erfinv", 1 - torch.exp2(-t.abs() * 3))):
        wanted, found = getattr(torch, name)(argument).numpy(), UNARY[name](argument.numpy())
        assert np.array_equal(np.isfinite(wanted), np.isfinite(found)) and np.array_equal(wanted[~np.isfinite(wanted)], found[~np.isfinite(found)], equal_nan=True)
        finite = np.isfinite(wanted)
        assert np.allclose(found[finite], wanted[finite], rtol=1e-9, atol=1e-300), name
