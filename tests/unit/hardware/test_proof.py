"""Programs against machine code, compiled here with no GPU."""

from pathlib import Path

import numpy as np
import pytest
from fixture_inputs import inputs_of
from hardware_kernels import BODY, MIDDLE, checked, output_code

from graphdiff import pipeline
from graphdiff.errors import GraphdiffError
from graphdiff.hardware.check import FIX, Stated, capability_of, check_capture, check_kernel, stated
from graphdiff.hardware.compile import HEADER, Job, compiled
from graphdiff.hardware.kernel import places, read_kernel
from graphdiff.hardware.machine import ptx_rounds
from graphdiff.lower.inductor import program_from_output_code
from graphdiff.lower.inductor.output_code import OutputCode
from graphdiff.program import Builder, Site
from graphdiff.report.model import MachineKernel
from graphdiff.store import read_capture

pytest.importorskip("triton")
FIXTURES = Path(__file__).parents[3] / "fixtures" / "cuda-90"


@pytest.mark.slow
@pytest.mark.parametrize("model", ["qwen3-tiny", "qwen3-8b-base"])
def test_every_kernel_of_an_engine_agrees(model):
    capture = read_capture(FIXTURES / model / "vllm.capture")
    made = pipeline.hardware(capture)
    assert {(k.verdict, k.reason) for k in made} == {("agrees", "")}
    assert sum(len(k.pieces) for k in made) == sum(k.kind == "triton" for k in capture.header.kernels)
    assert all(k.spills == 0 and k.stack == 0 and 16 <= k.registers <= 128 for k in made)
    states = [r.state for k in made for r in k.roundings]
    assert states.count("copy") == 1 and set(states) == {"copy", "there"}  # the embedding's rows are moved


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda:80", "cuda:100"])
def test_other_targets(target):
    made = check_capture(read_capture(FIXTURES / "qwen3-8b-base" / "vllm.capture"), target=target)
    assert {(k.verdict, k.reason, k.target, k.spills) for k in made} == {("agrees", "", target, 0)}


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90", "cuda:100"])
def test_contraction_deletes_the_middle_rounding(target):
    made = checked(output_code(MIDDLE), target)
    assert made.verdict == "rounding deleted"
    assert "tmp4" in made.reason and "fma.rn.bf16 rounds once" in made.reason and "enable_fp_fusion=False it stays" in made.reason
    assert [(r.names, r.state, r.fix) for r in made.roundings] == [(["tmp4"], "deleted", FIX), (["out_ptr0"], "there", "")]


def test_without_fusion_it_stays():
    made = checked(output_code(MIDDLE, fp_fusion=False))
    assert made.verdict == "agrees" and all(r.state == "there" for r in made.roundings)


def test_two_roundings_of_one_value_are_no_deleted_one():
    body = BODY + ("    tmp3 = tmp0 * tmp1\n    tmp4 = tmp3.to(tl.bfloat16)\n    tmp5 = tmp4.to(tl.float32)\n"
                   "    tl.store(out_ptr0 + xindex, tmp5, xmask)\n")
    assert checked(output_code(body)).verdict == "agrees"


def test_a_program_that_states_another_rounding_is_not_confirmed():
    kernel = read_kernel(output_code(MIDDLE, fp_fusion=False), "kernel")
    made = MachineKernel(kernel="kernel", target="cuda:90")
    lines = frozenset({kernel.shift + 12})
    check_kernel(kernel, made, Stated(lines, frozenset()), 90)
    assert made.verdict == "could not tell" and "no conversion or store" in made.reason


def test_a_kernel_that_takes_too_long_is_not_checked():
    made = checked(output_code(MIDDLE), seconds=0.01)
    assert made.verdict == "not checked" and "took longer" in made.reason


def test_what_triton_refuses_is_not_checked():
    made = checked(output_code(BODY + "    tmp3 = tl.load(tmp0)\n    tl.store(out_ptr0 + xindex, tmp3, xmask)\n"))
    assert made.verdict == "not checked" and made.reason


SPELLINGS = {
    "integer": """
    bits = product.to(tl.int32, bitcast=True)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & -65536
    middle = bits.to(tl.float32, bitcast=True)
""",
    "asm": """
    middle = tl.inline_asm_elementwise("{ .reg .b16 t; cvt.rn.bf16.f32 t, $1; mov.b32 $0, {0, t}; }", "=r,r", [product], dtype=tl.int32,
                                       is_pure=True, pack=1).to(tl.float32, bitcast=True)
""",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_spellings_that_contraction_leaves_alone(spelling):
    """Our own text, so it is compiled as it is."""
    source = ("@triton.jit\ndef kernel(a, b, c, out, N: tl.constexpr):\n    at = tl.arange(0, N)\n"
              "    product = tl.load(a + at).to(tl.float32) * tl.load(b + at).to(tl.float32)\n" + SPELLINGS[spelling]
              + "    tl.store(out + at, middle + tl.load(c + at).to(tl.float32))\n")
    signature = dict.fromkeys(("a", "b", "c", "out"), "*bf16") | {"N": "constexpr"}
    (made,) = compiled([Job(source=source, name="kernel", signature=signature, constants={"N": 1024}, sass=True)], 90)
    assert not made.error
    counts = ptx_rounds(made.ptx)
    assert set(counts) <= {"cvt.rn.bf16x2.f32", "cvt.rn.bf16.f32"} and sum(counts.values()) == (16 if spelling == "asm" else 8)
    assert "fma.rn.f32" not in made.ptx


def test_only_graphdiffs_own_lines_are_added():
    assert all(line.startswith(("import triton", "from triton")) for line in HEADER.splitlines())


def test_targets():
    assert capability_of("cuda:80") == 80
    for target in ("native", "", "cuda:12"):
        with pytest.raises(GraphdiffError):
            capability_of(target)


def test_the_program_says_which_roundings_move_what_is_rounded_already():
    capture = read_capture(FIXTURES / "qwen3-8b-base" / "vllm.capture")
    said = stated(capture.program, "triton_red_fused__to_copy_embedding_rms_norm_0", "submod_0")
    assert (len(said.rounds), len(said.exact)) == (2, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["template_mm", "template_bmm", "cooperative_looped", "cooperative_persistent", "mixed_order_two"])
def test_rare_schedules_agree(name):
    """A template's accumulator is rounded before its epilogue, in the machine code too; rows are split over programs."""
    text = (FIXTURES.parent / "inductor" / "schedules" / f"{name}.py.txt").read_text()
    code = OutputCode(text, "piece")
    program, _ = program_from_output_code(text, inputs_of(text), name="piece")
    for kernel in code.sources:
        made = MachineKernel(kernel=kernel, pieces=["piece"], target="cuda:90")
        check_kernel(read_kernel(code, kernel), made, stated(program, kernel, "piece"), 90)
        assert made.verdict == "agrees", made.reason
        assert len(made.roundings) == (2 if name.startswith("template") else 1)
        assert all(r.state == "there" for r in made.roundings)


# ---- casts of what is rounded already
def _held(body, exact, fp_fusion=False):
    """The verdict where the program rounds wherever the text does, and these only what is rounded already."""
    kernel = read_kernel(output_code(body, fp_fusion=fp_fusion), "kernel")
    lines = {p.name: p.lines for p in places(kernel)}
    made = MachineKernel(kernel="kernel", target="cuda:90")
    check_kernel(kernel, made, Stated(frozenset(n for ns in lines.values() for n in ns), frozenset(n for name in exact for n in lines[name])), 90)
    return made


IN_PLACE = BODY + """\
    tmp3 = tl.load(out_ptr0 + xindex, xmask).to(tl.float32)
    tmp4 = tmp3.to(tl.bfloat16)
    tmp5 = tmp4.to(tl.float32)
    tmp6 = tmp0 + tmp5
    tmp7 = tmp6.to(tl.bfloat16)
    tmp8 = tmp7.to(tl.float32)
    tmp9 = tmp8 * 0.3
    tl.store(out_ptr0 + xindex, tmp9, xmask)
"""
"""What is loaded is cast, added, rounded, scaled and stored where it came from (emulate_precision_casts)."""


@pytest.mark.parametrize("fp_fusion", [False, True])
def test_a_cast_of_what_was_loaded_is_never_deleted(fp_fusion):
    made = _held(IN_PLACE, ["tmp4"], fp_fusion)
    assert made.verdict == "agrees", made.reason
    assert [(r.names, r.state, r.elements > 0) for r in made.roundings] == [(["tmp4"], "copy", False), (["tmp7"], "there", True), (["out_ptr0"], "there", True)]


MASKED = BODY + """\
    tmp3 = tmp0 * tmp1
    tmp4 = tmp3.to(tl.bfloat16)
    tmp5 = tmp4.to(tl.float32)
    tmp6 = tl.where(xindex % 2 == 0, tmp5, tmp2)
    tmp7 = -tmp6
    tmp8 = tmp7.to(tl.bfloat16)
    tmp9 = tmp8.to(tl.float32)
    tmp10 = tmp9 + tmp1
    tmp11 = tmp10.to(tl.bfloat16)
    tmp12 = tmp11.to(tl.float32)
    tmp13 = tl.where(xindex % 4 < 3, tmp12, tmp0)
    tl.store(out_ptr0 + xindex, tmp13, xmask)
"""


def test_choosing_and_negating_rounded_numbers_is_no_rounding():
    """Half of the lanes need the first rounding; the store moves rounded numbers, and rounds where nothing else does."""
    made = _held(MASKED, ["tmp8", "out_ptr0"])
    assert made.verdict == "agrees", made.reason
    assert {r.names[0]: r.state for r in made.roundings} == {"tmp4": "there", "tmp8": "copy", "tmp11": "there", "out_ptr0": "copy"}


@pytest.mark.parametrize("body", [IN_PLACE, MASKED])
def test_no_fix_is_a_setting_that_is_on(body):
    """The same text, and nobody says which casts are exact: nothing is claimed that cannot be told."""
    made = checked(output_code(body, fp_fusion=False))
    assert made.verdict != "rounding deleted" and not any(r.fix for r in made.roundings)
    assert made.verdict == "agrees" or made.reason


def test_a_deleted_rounding_among_copies_is_found():
    body = MIDDLE.replace("    tmp5 = tmp4 + tmp2\n", "    tmp6 = tmp2.to(tl.bfloat16)\n    tmp7 = tmp6.to(tl.float32)\n    tmp5 = tmp4 + tmp7\n")
    made = _held(body, ["tmp6"], fp_fusion=True)
    assert made.verdict == "rounding deleted" and [r.names for r in made.roundings if r.fix] == [["tmp4"]]


def test_what_a_program_chooses_or_signs_is_held():
    builder = Builder()
    x = builder.leaf("x", np.zeros(4, np.uint16), "bfloat16")
    low = builder.round(builder.op("exp", x), "bfloat16")
    wide = builder.op("exp", builder.op("neg", x))
    exact = [builder.op("maximum", builder.op("neg", x), low), builder.op("amax", x, axes=(0,)), builder.op("minimum", x, 0.5),
             builder.leaf("eight bits", np.zeros(4, np.uint8), "float8_e4m3fn")]
    made = [*exact, builder.op("maximum", x, wide), builder.op("mul", x, low), builder.op("maximum", x, 0.3), builder.leaf("h", np.zeros(4, np.uint16), "float16")]
    for line, value in enumerate(made, 1):
        builder.site = Site(kernel="kernel", code="piece", code_line=line)
        builder.round(value, "bfloat16")
    assert stated(builder.program, "kernel", "piece") == Stated(frozenset(range(1, 9)), frozenset({1, 2, 3, 4}))
