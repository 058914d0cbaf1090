"""Small kernels by hand: what memory remembers, what registers hold, and what stops a lowering."""

import numpy as np
import pytest
from small_kernels import output_code

from graphdiff.errors import GraphdiffError
from graphdiff.lower.inductor import Input, program_from_output_code
from graphdiff.program.dtypes import encode_bfloat16
from graphdiff.program.evaluate import Evaluation

X = np.linspace(-3, 3, 8, dtype=np.float32)
ALLOCATE = "x, = args\nbuf0 = empty_strided_cuda((8, ), (1, ), torch.bfloat16)\n"
RUN = ALLOCATE + "k.run(x, buf0, 8, stream=0)\nreturn (buf0, )"
POINTERS = {"in_ptr0": "*bf16", "out_ptr0": "*bf16"}
LOAD = "tmp0 = tl.load(in_ptr0 + (x0), xmask).to(tl.float32)\n"


def lower(body, call=RUN, *, inputs=None, **kwargs):
    inputs = inputs or [Input("x", encode_bfloat16(X), "bfloat16")]
    text = output_code(body, call, pointers=kwargs.pop("pointers", POINTERS), **kwargs)
    program, bits = program_from_output_code(text, inputs, name="piece")
    return program, (Evaluation(program, bits).output(0) if program.outputs else None)


def ops(program):
    return [n.op for n in program.nodes]


def test_a_store_rounds_and_a_register_does_not():
    program, _ = lower(LOAD + "tmp1 = tmp0 * tmp0\ntl.store(out_ptr0 + (x0), tmp1, xmask)\n"
                       "tmp2 = tmp1 + tmp0\ntl.store(out_ptr0 + (x0), tmp2, xmask)")
    assert ops(program) == ["leaf", "mul", "round", "add", "round"]
    assert program.nodes[3].operands[0].nodes == (1,)


def test_a_reload_reads_the_rounded_value():
    program, _ = lower(LOAD + "tmp1 = tmp0 * tmp0\ntl.store(out_ptr0 + (x0), tmp1, xmask)\n"
                       "tmp2 = tl.load(out_ptr0 + (x0), xmask).to(tl.float32)\ntmp3 = tmp2 + tmp0\n"
                       "tl.store(out_ptr0 + (x0), tmp3, xmask)")
    assert program.nodes[3].op == "add" and program.nodes[3].operands[0].nodes == (2,)


def test_conversion_to_bfloat16_rounds_to_float32_is_nothing():
    program, _ = lower(LOAD + "tmp1 = tmp0 * tmp0\ntmp2 = tmp1.to(tl.float32).to(tl.bfloat16).to(tl.float32)\n"
                       "tmp3 = tmp2 + tmp0\ntl.store(out_ptr0 + (x0), tmp3, xmask)")
    assert ops(program) == ["leaf", "mul", "round", "add", "round"]


def test_arithmetic_in_bfloat16_rounds_every_result():
    program, _ = lower("tmp0 = tl.load(in_ptr0 + (x0), xmask)\ntmp1 = tmp0 * tmp0\ntmp2 = tmp1 + tmp0\n"
                       "tl.store(out_ptr0 + (x0), tmp2, xmask)")
    assert ops(program) == ["leaf", "mul", "round", "add", "round", "round"]


def test_a_partial_store_leaves_the_rest():
    program, got = lower(LOAD + "tmp1 = tmp0 + tmp0\ntmp2 = x0 < 4\ntl.store(in_ptr0 + (x0), tmp1, xmask & tmp2)\n",
                         "x, = args\nk.run(x, x, 8, stream=0)\nreturn (x, )")
    low = Evaluation(program, {0: encode_bfloat16(X)}).flat(0)
    assert np.array_equal(got, np.where(np.arange(8) < 4, 2 * low, low))
    assert program.outputs[0].operand.nodes == (0, 2)


def test_in_place_reuse_reads_before_it_writes():
    call = "x, = args\nbuf1 = x; del x\nk.run(buf1, 8, stream=0)\nreturn (buf1, )"
    program, got = lower("tmp0 = tl.load(in_out_ptr0 + (x0), xmask).to(tl.float32)\ntmp1 = tmp0 * 2.0\n"
                         "tl.store(in_out_ptr0 + (x0), tmp1, xmask)", call, pointers={"in_out_ptr0": "*bf16"})
    assert ops(program) == ["leaf", "const", "mul", "round"] and got.shape == (8,)


def test_where_and_fills_are_data_movement():
    program, got = lower("tmp1 = x0 < 4\ntmp0 = tl.load(in_ptr0 + (x0), xmask & tmp1, other=0.0).to(tl.float32)\n"
                         "tmp2 = tl.full([1], 1.0, tl.float32)\ntmp3 = tl.where(tmp1, tmp0, tmp2)\n"
                         "tl.store(out_ptr0 + (x0), tmp3, xmask)")
    assert set(ops(program)) == {"leaf", "const", "round"}
    assert (got[4:] == 1).all()


def test_a_float_comparison_follows_the_numbers():
    _, got = lower(LOAD + "tmp1 = tmp0 > 0.0\ntmp2 = tl.where(tmp1, tmp0, -tmp0)\n"
                   "tl.store(out_ptr0 + (x0), tmp2, xmask)")
    assert (got > 0).all()


def test_looped_reduction_starts_from_zero_without_an_addition():
    index = ("xoffset = tl.program_id(0) * XBLOCK\nxindex = xoffset + tl.arange(0, XBLOCK)[:, None]\n"
             "xmask = xindex < xnumel\nr0_base = tl.arange(0, R0_BLOCK)[None, :]\n")
    body = ("_tmp1 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)\n"
            "for r0_offset in tl.range(0, r0_numel, R0_BLOCK):\n    r0_index = r0_offset + r0_base\n"
            "    r0_mask = r0_index < r0_numel\n"
            "    tmp0 = tl.load(in_ptr0 + (r0_index + 4*xindex), r0_mask & xmask, other=0.0).to(tl.float32)\n"
            "    tmp2 = _tmp1 + tmp0\n    _tmp1 = tl.where(r0_mask & xmask, tmp2, _tmp1)\n"
            "tmp1 = tl.sum(_tmp1, 1)[:, None]\ntl.store(out_ptr0 + (xindex), tmp1, xmask)")
    program, got = lower(body, ALLOCATE.replace("(8, )", "(2, )") + "k.run(x, buf0, 2, 4, stream=0)\nreturn (buf0, )",
                         kind="reduction", index=index, sizes=("xnumel", "r0_numel"), blocks=("XBLOCK", "R0_BLOCK"))
    assert ops(program) == ["leaf", "const", "sum", "round"] and got.shape == (2,)


def test_token_gathers_are_embeddings_and_position_gathers_are_not():
    body = ("tmp0 = tl.load(in_ptr1 + (x0), xmask)\ntmp1 = tl.load(in_ptr0 + (tmp0), xmask).to(tl.float32)\n"
            "tl.store(out_ptr0 + (x0), tmp1, xmask)")
    pointers = {"in_ptr0": "*bf16", "in_ptr1": "*i64", "out_ptr0": "*bf16"}
    call = ALLOCATE.replace("x, =", "x, ids =") + "k.run(x, ids, buf0, 8, stream=0)\nreturn (buf0, )"
    for dynamic in (True, False):
        inputs = [Input("x", encode_bfloat16(X), "bfloat16", dynamic=False),
                  Input("ids", np.arange(8)[::-1].copy(), "int64", dynamic=dynamic)]
        program, _ = lower(body, call, inputs=inputs, pointers=pointers)
        assert ("embedding" in ops(program)) == dynamic
        assert program.nodes[-1].dynamic == dynamic


@pytest.mark.parametrize(("statement", "construct"), [
    ("tmp1 = tl.dot(tmp0, tmp0)", "tl.dot"),
    ("tmp1 = tl.atomic_max(out_ptr0 + (x0), tmp0, xmask)", "tl.atomic_max"),
    ("tmp1 = libdevice.cyl_bessel_i0(tmp0)", "libdevice.cyl_bessel_i0"),
    ("tmp1 = tl.inline_asm_elementwise('cvt', '=r', [tmp0])", "tl.inline_asm_elementwise"),
    ("tmp1 = tmp0.to(tl.float32, bitcast=True)", "a bitcast"),
    ("tmp1 = tmp0.to(tl.float64)", "a conversion to tl.float64"),
    ("tmp1 = tl.rand(3, x0)", "tl.rand"),
    ("while True:\n    pass", "the statement"),
    ("tmp1 = tmp0.item()", "the method .item()"),
    ("tmp1 = [t for t in (1, 2)]", "the expression"),
])
def test_unknown_constructs_stop_with_kernel_and_line(statement, construct):
    with pytest.raises(GraphdiffError) as caught:
        lower(LOAD + statement)
    message = str(caught.value)
    assert f"no lowering for {construct}" in message and "kernel k line 17" in message and "piece" in message


def test_other_kernel_kinds_are_named():
    with pytest.raises(GraphdiffError, match=r"no lowering for tl.dot \(a user_autotune kernel\) \(kernel k line 11\)"):
        lower(LOAD + "tmp1 = tl.dot(tmp0, tmp0)", kind="user_autotune")
    with pytest.raises(GraphdiffError, match="a split_scan kernel"):
        lower(LOAD, kind="split_scan")
    with pytest.raises(GraphdiffError, match="a template that is launched without its grid"):
        lower(LOAD + "tmp1 = tl.dot(tmp0, tmp0)", kind="template")


def test_uninitialised_reads_are_errors():
    with pytest.raises(GraphdiffError, match="never written.*kernel k line 16"):
        lower("tmp0 = tl.load(out_ptr0 + (x0), xmask)")
    with pytest.raises(GraphdiffError, match="never written"):
        lower(LOAD + "tl.store(out_ptr0 + (x0), tmp0, x0 < 4)")


def test_an_index_outside_of_memory_is_an_error():
    with pytest.raises(GraphdiffError, match="index 8 is outside memory of 8 elements.*kernel k line 16"):
        lower("tmp0 = tl.load(in_ptr0 + (x0 + 2), xmask)")
    with pytest.raises(GraphdiffError, match="index -1 is outside"):
        lower(LOAD + "tl.store(out_ptr0 + (x0 - 1), tmp0, xmask)")


def test_a_false_device_assert_is_an_error():
    with pytest.raises(GraphdiffError, match="device_assert failed: too big"):
        lower('tl.device_assert(x0 < 4, "too big")')


@pytest.mark.parametrize(("call", "construct"), [
    ("buf0 = torch.ops.aten.bincount.default(args[0])\nreturn (buf0, )", "torch.ops.aten.bincount.default"),
    ("buf0 = extern_kernels.convolution(args[0])\nreturn (buf0, )", "extern_kernels.convolution"),
    ("buf0 = empty_strided_cuda((8, ), (1, ), torch.float64)\nreturn (buf0, )", "a buffer of float64"),
    ("while True:\n    pass", "the statement"),
])
def test_unknown_calls_stop_with_their_line(call, construct):
    with pytest.raises(GraphdiffError, match=f"no lowering for {construct}.*line"):
        lower(LOAD, call)


@pytest.mark.parametrize("statement", ["tmp1, tmp2 = tmp0", "tmp1 = tmp0 + tl.arange(0, 3)", "tmp1 = tl.sum(tmp0, 5)",
                                       "tmp1 = tl.load(tmp0)", "tmp1 = 1 // 0", "tmp1 = [1][3]"])
def test_malformed_statements_are_said_with_their_place(statement):
    with pytest.raises(GraphdiffError, match="kernel k line 17, piece"):
        lower(LOAD + statement)


def test_what_is_no_output_code_is_said():
    with pytest.raises(GraphdiffError, match="has no call"):
        program_from_output_code("x = 1", [])
    with pytest.raises(GraphdiffError, match="does not parse"):
        program_from_output_code("def call(:", [])


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_addmm_is_a_matmul_a_sum_and_one_rounding(dtype):
    call = (f"b, x, w = args\nbuf0 = empty_strided_cuda((2, 2), (2, 1), torch.{dtype})\n"
            "extern_kernels.addmm(b, x, reinterpret_tensor(w, (2, 2), (1, 2), 0), alpha=1, beta=1, out=buf0)\n"
            "return (buf0, )")
    inputs = [Input(n, encode_bfloat16(np.ones(s)), "bfloat16") for n, s in (("b", 2), ("x", (2, 2)), ("w", (2, 2)))]
    program, got = lower("pass", call, inputs=inputs)
    assert ops(program)[3:] == ["mm", "add", "round"][:3 if dtype == "bfloat16" else 2]
    assert (got == 3).all()
