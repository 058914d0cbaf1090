"""Integer registers have a width, sorts and extrema an order, memory an end, and arguments the numbers they had.

Compiled for cuda:90 and for this machine, lowered, and held against eager in float32, where nothing may differ but order.
"""

import numpy as np
import pytest
from small_kernels import output_code

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from graphdiff.capture.compiled import record_compiled  # noqa: E402
from graphdiff.capture.function import Function  # noqa: E402
from graphdiff.errors import GraphdiffError  # noqa: E402
from graphdiff.lower.inductor import Input, program_from_output_code  # noqa: E402
from graphdiff.program.evaluate import Evaluation  # noqa: E402

nan, inf = float("nan"), float("inf")
GENERATOR = torch.Generator().manual_seed(0)


def ints(low, high, *shape, dtype):
    return torch.randint(low, high, shape, generator=GENERATOR).to(dtype)


def floats(*shape):
    return torch.randn(*shape, generator=GENERATOR)


def doubled_in_place(a):
    a.view(-1)[3:7].mul_(2)
    return a * 1.5


def attend(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True) * 2


CASES = {
    "int32 wraps": (lambda i: ((i * 1103515245 + 12345) >> 3).float(), (ints(1, 10000, 8, dtype=torch.int32),)),
    "uint8 wraps": (lambda i: (i + 200).float() + (~i).float() + (-i).float(), (ints(0, 256, 16, dtype=torch.uint8),)),
    "int4 of int8": (lambda a, s: ((a << 4) >> 4).float() * s, (ints(-128, 128, 9, dtype=torch.int8), floats(9))),
    "int4 of int32": (lambda a, s: ((a[:, None] << torch.arange(28, -4, -4, dtype=torch.int32)) >> 28).float() * s,
                      (ints(-(2**31), 2**31 - 1, 9, dtype=torch.int32), floats(8))),
    "a wrapped comparison": (lambda x, i: torch.where((i + i) > 0, x, -x), (floats(16), ints(-128, 128, 16, dtype=torch.int8))),
    "abs of the least": (lambda i: i.abs().float(), (torch.tensor([-128, -127, 5], dtype=torch.int8),)),
    "int8 scan": (lambda a: a.cumsum(0, dtype=torch.int8).float(), (ints(0, 60, 9, dtype=torch.int8),)),
    "int8 sum": (lambda a: a.sum().float(), (ints(100, 127, 64, dtype=torch.int8),)),
    "descending with NaN": (lambda a: a.sort(-1, descending=True)[0] * 2, (torch.tensor([[1.0, nan, 3, 2], [nan, 5, -inf, inf]]),)),
    "topk with NaN": (lambda a: a.topk(2)[0] * 2, (torch.tensor([[1.0, nan, 3, 2], [4, 5, -inf, inf]]),)),
    "strided integers": (lambda x, i: x.gather(1, i) * 2, (floats(4, 6), ints(0, 6, 6, 4, dtype=torch.int64).t())),
    "an argument that is written to": (doubled_in_place, (floats(6, 10),)),
    "an argument that is returned": (lambda a: (a, a * 2), (floats(6, 10),)),
    "floor division": (lambda a, b: (a // b) + torch.remainder(a, b), (floats(8, 8), floats(8, 8))),
    "causal, more keys than queries": (attend, (floats(1, 2, 8, 64), floats(1, 2, 16, 64), floats(1, 2, 16, 64))),
}  # fmt: skip
CUDA_ONLY = {
    "equal maxima": (lambda a: a.t().argmax().float() * 2, (torch.tensor([[0.0, 1, 0], [0, 0, 1], [1, 0, 0]]),)),
}


@pytest.mark.parametrize("target", ["cuda:90", "native"])
@pytest.mark.parametrize("name", CASES)
def test_against_eager(name, target):
    check(*CASES[name], target)


@pytest.mark.parametrize("name", CUDA_ONLY)
def test_cuda_against_eager(name):
    check(*CUDA_ONLY[name], "cuda:90")


def check(function, args, target):
    wanted = function(*[a.clone() for a in args])
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    captured = Function(function, tuple(a.clone() for a in args), tuple("abc"[: len(args)]), __file__, "function")
    recorded = record_compiled(captured, target)
    assert len(recorded.program.outputs) == len(wanted)
    evaluation = Evaluation(recorded.program, recorded.bits)
    for i, want in enumerate(wanted):
        assert np.allclose(evaluation.output(i), want.numpy(), rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("number, held", [(3e9, 2**31 - 1), (-3e9, -(2**31)), (nan, 0), (inf, 2**31 - 1), (-1.5, -1)])
def test_floats_beyond_integers_are_held_at_their_end_on_cuda(number, held):
    """cvt.rzi.s32.f32 saturates, and gives 0 of a NaN; torch on a CPU has other answers."""
    recorded = record_compiled(Function(lambda a: a.to(torch.int32).float(), (torch.full((4,), number),), ("a",), __file__, "f"), "cuda:90")
    assert (Evaluation(recorded.program, recorded.bits).output(0) == np.float32(held)).all()


def test_low_format_registers():
    """codegen_upcast_to_fp32=False: constants have the format, and 16-bit floats are divided in float32 by Triton."""
    off = {"triton.codegen_upcast_to_fp32": False}
    x = floats(64).bfloat16()
    scaled = record_compiled(Function(lambda a: a * 0.1, (x,), ("a",), __file__, "f"), "cuda:90", config_patches=off).program
    assert [n.attrs["value"] for n in scaled.nodes if n.op == "const"] == [float(torch.tensor(0.1).bfloat16())]
    divided = record_compiled(Function(lambda a: (a / (a * a)) * a, (x,), ("a",), __file__, "f"), "cuda:90", config_patches=off).program
    (div,) = [n for n in divided.nodes if n.op == "div"]
    reader = next(n for n in divided.nodes if any(divided.nodes[m].op == "div" for o in n.operands for m in o.nodes))
    assert div.dtype == "float32" and reader.op == "mul"


CALL = "def call(args):\n    q, = args\n    buf0 = torch.ops.aten._scaled_dot_product_{}\n    buf1 = buf0[0]\n    return (buf1, )\n"


@pytest.mark.parametrize("call, causal", [
    ("cudnn_attention.default(q, q, q, None, True, 0.0, False)", False), ("cudnn_attention.default(q, q, q, None, False, 0.0, True)", True),
    ("flash_attention.default(q, q, q, 0.0, False, True)", False), ("flash_attention.default(q, q, q, 0.0, True)", True),
    ("efficient_attention.default(q, q, q, None, True, 0.0, False)", False), ("efficient_attention.default(q, q, q, None, False, 0.0, True, scale=0.0)", True),
])  # fmt: skip
def test_which_flag_of_an_attention_is_causal(call, causal):
    program, _ = program_from_output_code(CALL.format(call), [Input("q", floats(1, 2, 8, 16).numpy(), "float32")])
    (node,) = [n for n in program.nodes if n.op == "attention"]
    assert node.attrs["causal"] is causal and node.attrs["scale"] == (0.0 if "scale" in call else 0.25)


def test_memory_has_an_end():
    """A view beyond a tensor's memory would read whatever lies behind it."""
    text = "def call(args):\n    a, = args\n    buf0 = empty_strided_cuda((4, 4), (4, 1), torch.float32)\n" \
           "    extern_kernels.mm(reinterpret_tensor(a, (4, 4), (4, 1), 12), a, out=buf0)\n    return (buf0, )\n"
    with pytest.raises(GraphdiffError, match="memory that holds 16"):
        program_from_output_code(text, [Input("a", floats(4, 4).numpy(), "float32")])


def test_a_condition_that_is_true_of_some_elements_is_refused():
    code = output_code("if x0 > 2:\n    tmp0 = 1.0\nelse:\n    tmp0 = 2.0\ntl.store(out_ptr0 + (x0), tmp0, xmask)",
                       "    a, = args\n    k.run(a, 8, stream=None)\n    return (a, )", pointers={"out_ptr0": "*fp32"})
    with pytest.raises(GraphdiffError, match="true of some elements only"):
        program_from_output_code(code, [Input("a", np.zeros(8, np.float32), "float32")])
