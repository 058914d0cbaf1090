"""Rules of the C++ backend on loops written by hand, and what is said of loops nobody understands."""

import numpy as np
import pytest

from graphdiff.errors import GraphdiffError
from graphdiff.lower.inductor.context import Context
from graphdiff.lower.inductor.pieces import float_leaf
from graphdiff.lower.inductor_cpp import Body, BodyNode, CppKernel, Indirect, Loop
from graphdiff.lower.inductor_cpp import index as expressions
from graphdiff.lower.inductor_cpp.loop import launch
from graphdiff.program import Builder, Evaluation

N = 8


def n(name):
    return {"n": name}


def node(name, op, *args, **kwargs):
    return BodyNode(name, op, list(args), kwargs)


def at(name="index0"):
    return node(f"get_{name}", "get_index", name)


def body(*nodes, indexing=None, **more):
    return Body("op0", [("p0", str(N))], indexing or {"index0": "p0"}, {"": [at(), *nodes], **more.pop("blocks", {})}, **more)


def kernel(*loops, dtypes, arguments, **more):
    made = [loop if isinstance(loop, Loop) else Loop([str(N)], [], list(loop)) for loop in loops]
    return CppKernel("cpp_fused_0", made, arguments, dtypes, **more)


def run(made, *dtypes, seed=0):
    """Arguments of random numbers; (builder, tensors, real numbers in)."""
    builder = Builder()
    rng = np.random.default_rng(seed)
    given, tensors = [], []
    for i, dtype in enumerate(dtypes):
        numbers = rng.standard_normal(N).astype(np.float32)
        raw = (numbers.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bfloat16" else numbers
        tensors.append(float_leaf(builder, f"x{i}", raw, dtype))
        given.append(numbers)
    launch(Context(builder), made, tensors)
    return builder, tensors, given


LOAD_X = (node("x", "load", "a", n("get_index0")), node("wide", "to_dtype", n("x"), "float32"))
SQUARE = node("y", "mul", n("wide"), n("wide"))
BF16 = {"a": "bfloat16", "b": "bfloat16", "c": "float32"}
PLACES = {"a": 0, "b": 1, "c": 2}


def rounds(builder):
    return sum(x.op == "round" for x in builder.program.nodes)


def test_a_cast_that_is_remembered_is_not_emitted():
    back = node("z", "to_dtype", n("low"), "float32")
    for kwargs, expected in (({}, 0), ({"use_compute_types": False}, 1)):
        low = node("low", "to_dtype", n("y"), "bfloat16", **kwargs)
        made = kernel([body(*LOAD_X, SQUARE, low, back, node("s", "store", "c", n("get_index0"), n("z"), None))], dtypes=BF16, arguments=PLACES)
        builder, tensors, _ = run(made, "bfloat16", "bfloat16", "float32")
        assert rounds(builder) == expected


def test_emulated_casts_are_emitted():
    low = node("low", "to_dtype", n("y"), "bfloat16")
    back = node("z", "to_dtype", n("low"), "float32")
    made = kernel([body(*LOAD_X, SQUARE, low, back, node("s", "store", "c", n("get_index0"), n("z"), None))],
                  dtypes=BF16, arguments=PLACES, emulate=True)
    assert rounds(run(made, "bfloat16", "bfloat16", "float32")[0]) == 1


def test_store_and_reuse_in_one_loop_and_in_two():
    store = (SQUARE, node("low", "to_dtype", n("y"), "bfloat16"), node("s", "store", "b", n("get_index0"), n("low"), None))
    again = (node("u", "load", "b", n("get_index0")), node("v", "to_dtype", n("u"), "float32"), node("w", "mul", n("v"), n("v")),
             node("t", "store", "c", n("get_index0"), n("w"), None))
    together = kernel([body(*LOAD_X, *store), body(*again)], dtypes=BF16, arguments=PLACES)
    apart = kernel([body(*LOAD_X, *store)], [body(*again)], dtypes=BF16, arguments=PLACES)
    for made, reads_rounded in ((together, False), (apart, True)):
        builder, _, _ = run(made, "bfloat16", "bfloat16", "float32")
        last = [x for x in builder.program.nodes if x.op == "mul"][-1]
        assert (builder.program.nodes[last.operands[0].nodes[0]].op == "round") == reads_rounded


def test_a_local_buffer_nobody_loads_later_is_not_rounded():
    store = (SQUARE, node("low", "to_dtype", n("y"), "bfloat16"), node("s", "store", "b", n("get_index0"), n("low"), None))
    again = (node("u", "load", "b", n("get_index0")), node("v", "to_dtype", n("u"), "float32"),
             node("t", "store", "c", n("get_index0"), n("v"), None))
    made = kernel([body(*LOAD_X, *store), body(*again)], dtypes=BF16, arguments={"a": 0, "c": 1})
    assert rounds(run(made, "bfloat16", "float32")[0]) == 0


def test_a_suffix_reads_the_accumulator_and_forgets_conversions():
    reduce = Body("op0", [("p0", "2"), ("p1", "4")], {"index0": "4*p0 + p1", "index1": "p0"}, {"": [
        at(), *LOAD_X, node("r", "reduction", "float32", "float32", "sum", n("wide")), at("index1"),
        node("s", "store_reduction", "b", n("get_index1"), n("r"))]})
    after = Body("op1", [("p0", "2")], {"index0": "p0"}, {"": [
        at(), node("u", "load", "b", n("get_index0")), node("v", "to_dtype", n("u"), "float32"), node("w", "mul", n("v"), n("v")),
        node("t", "store", "c", n("get_index0"), n("w"), None)]}, suffix=True)
    made = kernel(Loop(["2"], ["4"], [reduce, after]), dtypes=BF16, arguments=PLACES)
    builder, _, _ = run(made, "bfloat16", "bfloat16", "float32")
    (last,) = [x for x in builder.program.nodes if x.op == "mul"]
    assert builder.program.nodes[last.operands[0].nodes[0]].op == "sum"


def test_a_masked_part_runs_on_its_lanes_only():
    inner = [node("get_index1", "get_index", "index1"), node("q", "load", "a", n("get_index1")), node("o", "to_dtype", n("q"), "float32"),
             node("output", "output", n("o"))]
    made = kernel([body(
        node("i", "index_expr", n("get_index0"), "int64"), node("k", "constant", 2, "int64"), node("m", "ge", n("i"), n("k")),
        node("r", "masked_subblock1", n("m"), 0.0), node("s", "store", "c", n("get_index0"), n("r"), None),
        indexing={"index0": "p0", "index1": "p0 - 2"}, blocks={"masked_subblock1": inner})], dtypes=BF16, arguments=PLACES)
    builder, tensors, given = run(made, "bfloat16", "bfloat16", "float32")
    numbers = builder.numbers(tensors[2].read())
    assert (numbers[:2] == 0).all() and np.allclose(numbers[2:], given[0][:-2], rtol=0.01)


def test_indirect_indices_wrap():
    made = kernel([body(
        node("i", "index_expr", n("get_index0"), "int64"), node("k", "constant", -1, "int64"), node("j", "mul", n("i"), n("k")),
        node("set_indirect0", "set_indirect0", n("j")), node("get_index1", "get_index", "index1"), node("x", "load", "a", n("get_index1")),
        node("wide", "to_dtype", n("x"), "float32"), node("s", "store", "c", n("get_index0"), n("wide"), None),
        indexing={"index0": "p0", "index1": "indirect0"}, indirect={"set_indirect0": Indirect(str(N))})], dtypes=BF16, arguments=PLACES)
    builder, tensors, given = run(made, "bfloat16", "bfloat16", "float32")
    assert np.allclose(builder.numbers(tensors[2].read()), given[0][-np.arange(N)], rtol=0.01)


def test_atomic_add_rounds_every_sum():
    made = kernel([body(*LOAD_X, node("s", "store", "b", n("get_index1"), n("wide"), "atomic_add"), node("get_index1", "get_index", "index1"),
                        indexing={"index0": "p0", "index1": "p0 % 2"})], dtypes=BF16, arguments=PLACES)
    made.loops[0].bodies[0].blocks[""].insert(1, made.loops[0].bodies[0].blocks[""].pop())
    builder, tensors, _ = run(made, "bfloat16", "bfloat16", "float32")
    assert rounds(builder) == N // 2


def test_a_truncation_written_with_masks_is_a_rounding_mode():
    made = kernel([body(*LOAD_X, SQUARE, node("i", "to_dtype_bitcast", n("y"), "int32", "float32"), node("k", "constant", -65536, "int32"),
                        node("j", "bitwise_and", n("i"), n("k")), node("z", "to_dtype_bitcast", n("j"), "float32", "int32"),
                        node("s", "store", "c", n("get_index0"), n("z"), None))], dtypes=BF16, arguments=PLACES)
    builder, _, _ = run(made, "bfloat16", "bfloat16", "float32")
    (found,) = [x for x in builder.program.nodes if x.op == "round"]
    assert (found.dtype, found.attrs["mode"]) == ("bfloat16", "rz")


@pytest.mark.parametrize("broken, said", [
    (node("y", "bessel_j0", n("wide")), "ops.bessel_j0"), (node("y", "to_dtype", n("wide"), "complex64"), "complex64"),
    (node("y", "rand", n("wide"), n("wide")), "ops.rand"), (node("y", "add", n("wide"), n("nobody")), "nobody"),
    (node("y", "reduction", "float32", "float32", "sum", n("wide")), "no dimension")])
def test_what_is_not_understood_is_named(broken, said):
    made = kernel([body(*LOAD_X, broken)], dtypes=BF16, arguments=PLACES)
    with pytest.raises(GraphdiffError) as error:
        run(made, "bfloat16", "bfloat16", "float32")
    assert said in str(error.value)


@pytest.mark.parametrize("text, value", [("4*p0 + s1", 11), ("(p0//2) % 2", 1), ("-p0 + max(s1, 1)", 1), ("(2 if p0 > 1 else 9)", 2)])
def test_index_expressions(text, value):
    assert expressions.evaluate(text, {"p0": 2, "s1": 3}) == value


@pytest.mark.parametrize("text", ["__import__('os')", "p0.x", "[p0]", "p0(1)", "'a'", "p0 +"])
def test_index_expressions_are_arithmetic_only(text):
    with pytest.raises(expressions.NoIndex):
        expressions.evaluate(text, {"p0": 2})


def test_evaluation_of_a_hand_written_kernel():
    made = kernel([body(*LOAD_X, SQUARE, node("low", "to_dtype", n("y"), "bfloat16"),
                        node("s", "store", "b", n("get_index0"), n("low"), None))], dtypes=BF16, arguments=PLACES)
    builder, tensors, _ = run(made, "bfloat16", "bfloat16", "float32")
    evaluation = Evaluation(builder.program, builder.leaf_bits)
    out = evaluation.read(builder.operand(tensors[1].read()))
    assert (out.view(np.uint32) & 0xFFFF == 0).all() and (out >= 0).all()
