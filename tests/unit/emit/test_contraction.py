"""The emitted kernels contract multiply and add exactly where the engine's kernels do: the same FP32 expressions in the
PTX of both, instruction by instruction, in front of every store."""

import sys

import pytest
from emit_functions import TOKENS
from emitted import load_package
from engine_kernels import launches_of
from ptx import compile_sm90
from ptx_expressions import engine_kernel, stored_expressions
from tiny_engine import tiny_qwen3

from graphdiff.emit import emit_package, emit_region, extract_regions
from graphdiff.lower.inductor import program_from_pieces

ENGINE_LOADS = {
    "rms_norm": {"in_ptr1": "x", "in_ptr2": "w"},
    "qk_norm_rope": {"in_ptr0": "x", "in_ptr1": "w", "in_ptr3": "t", "in_ptr4": "w"},
    "post_attention_layernorm": {"in_ptr0": "x", "in_ptr1": "x", "in_ptr2": "w"},
    "swiglu": {"in_ptr0": "x"},
    "input_layernorm": {"in_ptr0": "x", "in_ptr1": "x", "in_ptr2": "x", "in_ptr3": "w"},
}


@pytest.fixture(scope="module")
def engine():
    (program, _), seen = launches_of(lambda: program_from_pieces(tiny_qwen3("combo")))
    regions, _ = extract_regions(program, TOKENS)
    return {r.name: r for r in regions}, seen


def _seen(region, seen):
    wanted = region.parts[0].outputs[0].node
    return next(s for s in seen if any(i is not None and (i >> 33 == wanted).any() for i in s.after))


@pytest.mark.parametrize("name", ENGINE_LOADS)
def test_same_expressions_before_every_store(engine, name, tmp_path):
    regions, seen = engine
    launch = _seen(regions[name], seen)
    theirs, signature = engine_kernel(launch.source, launch.kernel.name)
    blocks = {n: 1024 if "poi" in launch.kernel.name else 8 for n, t in signature.items() if t == "constexpr"}
    compiled = compile_sm90(theirs, {n: t for n, t in signature.items() if t != "constexpr"}, blocks, 4)
    loads = {i: ENGINE_LOADS[name][n] for i, n in enumerate(theirs.arg_names) if n in ENGINE_LOADS[name]}
    wanted = stored_expressions(compiled.ptx, loads)

    emitted = emit_region(regions[name], namespace=f"test_contraction_{name}")
    package = load_package(emit_package([emitted]), tmp_path, f"contraction_{name}")
    ours = getattr(sys.modules[f"{package.__name__}.{emitted.module}"], f"_{name}_kernel")
    launched = emitted.meta["launches"]["forward"]
    compiled = compile_sm90(ours, launched["types"], launched["constants"], launched["warps"])
    shapes = {t.name: {"vector": "w", "table": "t"}.get(t.shape, "x") for t in emitted.signature.inputs}
    passed = [n for n in ours.arg_names if n not in launched["constants"] and not n.endswith("_l")]
    found = stored_expressions(compiled.ptx, {i: shapes[n] for i, n in enumerate(passed) if n in shapes})
    assert wanted and found == wanted
