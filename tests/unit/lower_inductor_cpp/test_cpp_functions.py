"""Stored C++ loops of small functions: their programs give the bits that the compiled functions gave."""

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from cpp_functions import FUNCTIONS, unpacked

from graphdiff.lower.inductor import Input
from graphdiff.lower.inductor_cpp import CppCode, program_from_cpp_code
from graphdiff.program import Evaluation
from graphdiff.program.dtypes import decode

FOLDER = Path(__file__).parents[3] / "fixtures" / "inductor_cpp"
TIES = {"softmax": 1, "add_norm": 1, "kept_reduction": 1}
"""Values a last bit of a float32 sum away from the other side of a tie."""


def stored(name):
    kept = json.loads((FOLDER / f"{name}.json").read_text())
    code = msgspec.convert(kept["code"], CppCode)
    inputs = [Input(f"x{i}", unpacked(k), k["dtype"], tuple(k["strides"])) for i, k in enumerate(kept["inputs"])]
    return code, inputs, kept


def lowered(name):
    code, inputs, kept = stored(name)
    program, bits = program_from_cpp_code(code, inputs, name=name)
    return program, bits, kept


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits(name):
    program, bits, kept = lowered(name)
    evaluation = Evaluation(program, bits)
    assert kept["results"]
    for place, result in zip(kept["outputs"], kept["results"]):
        output = next(i for i, o in enumerate(program.outputs) if o.name == f"output_{place}")
        real = decode(unpacked(result).reshape(-1), result["dtype"]).reshape(result["shape"])
        wrong = int((evaluation.output(output).astype(np.float32) != real.astype(np.float32)).sum())
        assert wrong <= TIES.get(name, 0)


def ops(program):
    return [n.op for n in program.nodes]


def reads(program, op):
    """Ops of the nodes that the nodes called `op` read."""
    return {program.nodes[m].op for n in program.nodes if n.op == op for o in n.operands for m in o.nodes}


def test_what_a_loop_has_stored_it_reads_from_the_register():
    program, _, _ = lowered("register")
    assert ops(program).count("round") == 2 and "round" not in reads(program, "mul")


def test_an_explicit_round_trip_is_no_rounding():
    program, _, _ = lowered("round_trip")
    assert ops(program).count("round") == 1


def test_a_later_loop_reads_the_rounded_buffer():
    """Both the variance and the normalisation reload the sum: outer loops are fused, inner loops are not."""
    program, _, _ = lowered("add_norm")
    (total,) = [i for i, n in enumerate(program.nodes) if n.op == "add" and n.size == 8 * 64]
    readers = {n.op for n in program.nodes for o in n.operands if total in o.nodes}
    assert readers == {"round"}


def test_rounded_halves_of_a_cat_are_told_apart():
    program, _, _ = lowered("rotate")
    assert all(o.name.startswith("output_") for o in program.outputs)
    assert "neg" in ops(program)


def test_a_gather_from_static_memory_is_an_embedding():
    code, inputs, _ = stored("gather")
    marked = [Input(i.name, i.raw, i.dtype, i.strides, dynamic=i.dtype == "int64" or len(i.raw) == 8) for i in inputs]
    program, _ = program_from_cpp_code(code, marked)
    assert "embedding" in ops(program)
