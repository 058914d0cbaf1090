"""Schedules that Inductor takes seldom: matmul templates, split reductions, sizes from numbers, bitcasts.

Their code is stored (tests/support/schedule_functions.py writes it); each kernel's bits are the interpreter's.
"""

from pathlib import Path

import numpy as np
import pytest
from fixture_inputs import inputs_of

from graphdiff.errors import GraphdiffError
from graphdiff.lower.inductor import program_from_output_code
from graphdiff.program.evaluate import Evaluation

FOLDER = Path(__file__).parents[3] / "fixtures" / "inductor" / "schedules"
NAMES = sorted(p.name.split(".")[0] for p in FOLDER.glob("*.py.txt"))


def read(name):
    return (FOLDER / f"{name}.py.txt").read_text()


def program_of(name, text=None):
    text = text or read(name)
    return program_from_output_code(text, inputs_of(text), name=name)


@pytest.fixture(scope="module")
def bits_found():
    """Per function, (kernel, differing elements, elements) of each launch."""
    pytest.importorskip("triton")
    pytest.importorskip("torch")
    from kernel_bits import differing, recorded

    launches = {n: recorded(lambda n=n: program_of(n)) for n in NAMES}
    found = iter(differing([launch for each in launches.values() for launch in each]))
    return {n: [next(found) for _ in each] for n, each in launches.items()}


@pytest.mark.parametrize("name", NAMES)
def test_bits(name, bits_found):
    assert bits_found[name] and all(elements > 0 for _, _, elements in bits_found[name])
    assert all(wrong == 0 for _, wrong, _ in bits_found[name]), bits_found[name]


def chain(program, output=0):
    """Ops from an output back through each node's first operand."""
    found, nodes = [], program.outputs[output].operand.nodes
    while nodes:
        node = program.nodes[nodes[0]]
        found.append((node.op, node.dtype, node.shape))
        nodes = node.operands[0].nodes if node.operands else ()
    return found


@pytest.mark.parametrize("name", ["template_mm", "template_mm_odd"])
def test_a_template_rounds_its_accumulator_before_the_epilogue_and_nothing_in_it(name):
    """The kernel says acc.to(bfloat16), as if a matmul kernel had stored it; silu is not rounded."""
    program, _ = program_of(name)
    ops = [n.op for n in program.nodes]
    assert ops.count("mm") == 1 and ops.count("round") == 2
    (mm,) = [n for n in program.nodes if n.op == "mm"]
    assert mm.shape == ((64, 64) if name == "template_mm" else (50, 90))
    assert program.nodes[ops.index("mm") + 1].op == "round"


def test_an_addmm_template_adds_its_bias_unrounded():
    program, _ = program_of("template_addmm")
    assert [op for op, *_ in chain(program)] == ["round", "add", "mm", "leaf"]


def test_a_batched_template_is_one_product():
    program, _ = program_of("template_bmm")
    assert [(op, shape) for op, _, shape in chain(program)][:4] == [
        ("round", (3, 32, 48)), ("add", (3, 32, 48)), ("round", (3, 32, 48)), ("mm", (3, 32, 48))]


@pytest.mark.parametrize("name", ["split_scalar", "split_columns"])
def test_partial_sums_are_not_rounded(name):
    program, _ = program_of(name)
    sums = [n for n in program.nodes if n.op == "sum"]
    assert len(sums) == 2 and all(n.dtype == "float32" for n in sums)
    assert [n.op for n in program.nodes].count("round") == (name == "split_columns")


@pytest.mark.parametrize("name, sums", [("mixed_order", 1), ("mixed_order_two", 2)])
def test_a_mixed_order_reduction_sums_the_rows_that_it_was_given(name, sums):
    """Weight gradients: partial sums lie in a workspace with a row per program, each sum in its own part of it."""
    text = read(name)
    inputs = inputs_of(text)
    program, bits = program_from_output_code(text, inputs, name=name)
    evaluation = Evaluation(program, bits)
    as_float = lambda x: (x.raw.astype(np.uint32) << 16).view(np.float32) if x.dtype == "bfloat16" else x.raw  # noqa: E731
    numbers = {x.name: as_float(x).astype(np.float64) for x in inputs}
    tangent = next(v for n, v in numbers.items() if n.startswith("tangents"))
    x, rsqrt = numbers["primals_1"], numbers["rsqrt"]
    wanted = [(tangent * x * rsqrt).sum(0), tangent.sum(0)][:sums]
    made = {o.operand.shape: [] for o in program.outputs}
    for i, o in enumerate(program.outputs):
        made[o.operand.shape].append(evaluation.output(i))
    for want, got in zip(wanted, made[(256,)], strict=True):
        assert np.allclose(got, want, rtol=0.02, atol=0.05 * np.abs(want).max())


@pytest.mark.parametrize("name", ["cooperative_looped", "cooperative_persistent"])
def test_a_cooperative_reduction_rounds_as_one_program_would(name):
    program, _ = program_of(name)
    assert [n.op for n in program.nodes].count("sum") == 1 and [n.op for n in program.nodes].count("round") == 1


def test_sizes_are_what_the_inputs_make_them():
    text = read("item")
    inputs = inputs_of(text)
    program, _ = program_from_output_code(text, inputs)
    assert program.outputs[0].operand.shape == (int(inputs[0].raw), 64)
    program, _ = program_of("mask")
    assert 0 < program.outputs[0].operand.shape[0] <= 16


def test_a_check_of_the_code_that_fails_is_said():
    text = read("item")
    inputs = inputs_of(text)
    inputs[0] = type(inputs[0])(inputs[0].name, np.asarray(40), inputs[0].dtype, inputs[0].strides)
    with pytest.raises(GraphdiffError, match="a check of the code fails on these inputs"):
        program_from_output_code(text, inputs)


@pytest.mark.parametrize("name", ["truncated", "masked_bits"])
def test_bit_arithmetic_that_is_a_truncation(name):
    program, _ = program_of(name)
    modes = [n.attrs.get("mode", "rne") for n in program.nodes if n.op == "round"]
    assert modes.count("rz") == 1


@pytest.mark.parametrize("name, old, new, said", [
    ("template_mm", "allow_tf32=ALLOW_TF32", "input_precision='tf32'", None),
    ("template_mm", "ACC_TYPE : tl.constexpr = tl.float32", "ACC_TYPE : tl.constexpr = tl.float16", "an accumulator that is not float32"),
    ("template_mm", "    M = 64\n", "    ROWS = 64\n", "a template that is no matmul"),
    ("truncated", " >> tmp", " ^ tmp", "no rounding"),
    ("split_scalar", "'grid_type': 'Grid1D'", "'grid_type': 'SplitScanGrid'", "the grid SplitScanGrid"),
    ("mixed_order", "empty_strided_cuda((1024, )", "empty_strided_cuda((1023, )", "a workspace of 1023 elements"),
])  # fmt: skip
def test_what_is_not_understood_is_named(name, old, new, said):
    text = read(name)
    assert old in text, "the fixture has changed"
    changed = text.replace(old, new)
    if said is None:  # 16-bit operands: TF32 changes nothing
        program_of(name, changed)
        return
    with pytest.raises(GraphdiffError, match=said):
        program_of(name, changed)


@pytest.mark.parametrize("grouped", [
    "assert_size_stride(arg0_1, {}, {}, 'input')", "assert_size_stride_grouped((arg0_1), ({}), ({}), 'input')",
    "assert_size_stride_grouped((arg0_1, arg0_1), ((4096, 64), {}), ((64, 1), {}), 'input')",
])  # fmt: skip
def test_a_layout_that_the_code_does_not_state_is_an_error(grouped):
    """What follows reads memory by strides: another layout would silently be other elements. 2.14 asserts in groups."""
    text = read("split_columns")
    old = "assert_size_stride(arg0_1, (4096, 64), (64, 1), 'input')"
    assert old in text, "the fixture has changed"
    with pytest.raises(GraphdiffError, match=r"arg0_1 has shape \[4096, 64\] and strides \[64, 1\], where the code states"):
        program_of("split_columns", text.replace(old, grouped.format("(4096, 64)", "(1, 4096)")))
    program_of("split_columns", text.replace(old, grouped.format("(4096, 64)", "(64, 1)")))


def test_tf32_is_refused_for_float32_operands():
    text = read("template_mm").replace("bf16", "fp32").replace("bfloat16", "float32").replace("allow_tf32=ALLOW_TF32", "allow_tf32=True")
    with pytest.raises(GraphdiffError, match="TF32"):
        program_of("template_mm", text)
