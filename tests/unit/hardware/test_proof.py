"""Programs against machine code, compiled here with no GPU."""

from pathlib import Path

import pytest
from fixture_inputs import inputs_of
from hardware_kernels import BODY, MIDDLE, checked, output_code

from graphdiff import pipeline
from graphdiff.errors import GraphdiffError
from graphdiff.hardware.check import FIX, Stated, capability_of, check_capture, check_kernel, stated
from graphdiff.hardware.compile import HEADER, Job, compiled
from graphdiff.hardware.kernel import read_kernel
from graphdiff.hardware.machine import ptx_rounds
from graphdiff.lower.inductor import program_from_output_code
from graphdiff.lower.inductor.output_code import OutputCode
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
