"""Roundings inside kernels, rows wider than a tile, strides, empty and single rows; PTX for sm_90."""

import sys

import numpy as np
import pytest
import torch
from emit_functions import TOKENS, normal
from emitted import Call, call, load_package, run_in_interpreter
from ptx import compile_sm90
from regions import NUMBERS, arguments_of, differing, gradients_for, numbers, reference_gradients, tensors_of
from test_functions import captured
from tiny_engine import tiny_qwen3
from triton_interpreter import Launch, run_launches

from graphdiff.emit import emit_package, emit_region, extract_regions
from graphdiff.emit.ir import Input, Lanes, Part, Piece, RegionIR, RowOutput
from graphdiff.lower.inductor import program_from_pieces
from graphdiff.program import Evaluation, Options
from graphdiff.program.dtypes import round_to
from graphdiff.program.ops import Arithmetic

BF16 = torch.bfloat16


def rounded_product(dtype="bfloat16"):
    """round(x * y) + z: the rounding stands between two operations of one kernel."""
    part = Part("", 256, False)
    part.inputs = [Input(n, "row", 256, False, dtype) for n in "xyz"]
    x, y, z = (part.load(n, Lanes(0, 1, 256)) for n in "xyz")
    total = part.op("add", part.op("round", part.op("mul", x, y), attr=(dtype, "rne")), z)
    part.outputs = [RowOutput("y_out", dtype, 256, (Piece(Lanes(0, 1, 256), total),))]
    part.bind = {n: n for n in ("x", "y", "z", "y_out")}
    return RegionIR("pointwise", [part], "rounded_product")


@pytest.fixture(scope="module")
def engine():
    """Emitted regions of tiny Qwen3 by name."""
    regions, _ = extract_regions(program_from_pieces(tiny_qwen3("combo"))[0], TOKENS)
    return {r.name: (r, emit_region(r, namespace="test_kernels")) for r in regions}


@pytest.fixture(scope="module")
def files(engine):
    return emit_package(e for _, e in engine.values())


@pytest.fixture(scope="module")
def package(files, tmp_path_factory):
    return load_package(files, tmp_path_factory.mktemp("package"), "kernels_under_test")


# ---- roundings
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_round_helper_is_the_rounding(files, dtype):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    edges = np.array([0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.996, 65520, -65520, 2**-14, 2**-24, 2**-25, 1.5 * 2**-25,
                      3.3895314e38, 3.4028235e38, 1e-45, -1e-45, 2**-133, 1.0 + 2**-8, 1.0 + 3 * 2**-9], np.float32)
    x = np.concatenate([bits.view(np.float32), numbers("random", 1 << 14, "float32", rng), np.tile(edges, 10)])
    x = np.concatenate([x, np.zeros((1 << 17) - x.size, np.float32)])
    source = files["_common.py"] + f"""
@jit
def check(x, y, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.store(y + at, round_{dtype}(tl.load(x + at)))
"""
    launch = Launch("check", source, [x, np.zeros_like(x)], ["float32", "float32"], {"N": x.size}, (1,))
    got = run_launches([launch])[0][1]
    with np.errstate(all="ignore"):
        want = round_to(x, dtype)
    assert ((got == want) | (np.isnan(got) & np.isnan(want))).all()
    assert (np.signbit(got) == np.signbit(want))[~np.isnan(want)].all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_rounding_inside_a_kernel_stays(dtype, tmp_path):
    emitted = emit_region(rounded_product(dtype), namespace=f"test_inside_{dtype}")
    made = emit_package([emitted])
    rng = np.random.default_rng(1)
    x, y, z = (torch.from_numpy(numbers("random", 4 * 256, dtype, rng)).to(getattr(torch, dtype)).view(1, 4, 256) for _ in range(3))
    (answer,) = run_in_interpreter({"package": made}, [Call("package", emitted.name, (x, y, z))])
    product = (x.float() * y.float()).to(x.dtype).float()
    assert torch.equal(answer.outputs[0], (product + z.float()).to(x.dtype))
    load_package(made, tmp_path, f"inside_{dtype}")
    compiled = _compiled(emitted, f"inside_{dtype}", "forward")
    assert compiled.native_low == 0
    assert not [op for op in compiled.counts if op.startswith("fma") and op.endswith("f32")], "product and sum were contracted across the rounding"
    assert "add.s32" in compiled.ptx


def _compiled(emitted, package, which):
    launch = emitted.meta["launches"][which]
    suffix = "" if which == "forward" else "_backward"
    function = getattr(sys.modules[f"{package}.{emitted.module}"], f"_{emitted.name}{suffix}_kernel")
    return compile_sm90(function, launch["types"], launch["constants"], launch["warps"])


@pytest.mark.parametrize("which", ["forward", "backward"])
@pytest.mark.parametrize("name", ["rms_norm", "qk_norm_rope", "post_attention_layernorm", "swiglu", "input_layernorm", "final_norm"])
def test_ptx_has_every_rounding_and_no_spill(engine, package, name, which):
    _, emitted = engine[name]
    compiled = _compiled(emitted, package.__name__, which)
    assert compiled.spills == 0 and compiled.registers <= 128
    assert compiled.native_low == 0
    # Elements that one thread stores: lanes of a tile over its threads, for each stored tensor; two per instruction.
    launch = emitted.meta["launches"][which]
    shapes = emitted.meta["shapes" if which == "forward" else "backward_shapes"]
    tile = sum(s["rows"] * n for s, n in zip(shapes, emitted.meta["stored_lanes"][which]))
    pairs = compiled.counts["cvt.rn.bf16x2.f32"] * 2 + compiled.counts["cvt.rn.bf16.f32"]
    assert pairs == tile // (32 * launch["warps"])


# ---- rows wider than a tile
def test_rows_wider_than_a_tile_are_looped_over():
    program = captured("residual_norm").program
    (region,), _ = extract_regions(program, TOKENS)
    emitted = emit_region(region, namespace="test_loop", widest_tile=128)
    assert emitted.meta["shapes"][0]["form"] == "loop"
    calls, wanted = [], []
    for kind in NUMBERS:
        tensors, pins = tensors_of(region, program, kind)
        calls.append(Call("package", emitted.name, arguments_of(emitted, tensors)))
        evaluation = Evaluation(program, program.data, Options(pins=pins, arithmetic=Arithmetic(sum=_blockwise)))
        wanted.append([evaluation.flat(o.node) for p in region.parts for o in p.outputs])
    inputs = calls[0].inputs
    calls.append(Call("package", emitted.name, inputs, gradients_for(emitted, inputs)))
    answers = run_in_interpreter({"package": emit_package([emitted])}, calls)
    for kind, a, want in zip(NUMBERS, answers, wanted):
        assert [differing(o, w) for o, w in zip(a.outputs, want)] == [0] * len(want), kind
    for got, want in zip(answers[-1].gradients, reference_gradients(region, emitted, inputs, calls[-1].gradients)):
        assert ((got.double() - want).abs() <= want.abs() * 0.51 * torch.finfo(got.dtype).eps + want.abs().max() * 2e-6).all()


def _blockwise(x, axes):
    """Lanes of blocks of 128 are added up first, then the 128 sums."""
    x = np.moveaxis(x, axes[0], -1)
    total = np.zeros((*x.shape[:-1], 128), np.float32)
    for start in range(0, x.shape[-1], 128):
        piece = x[..., start:start + 128]
        total[..., :piece.shape[-1]] = total[..., :piece.shape[-1]] + piece
    return total.sum(-1, dtype=np.float32)


# ---- strides and sizes
def test_strided_inputs_give_the_same_bits_without_a_copy(engine, files):
    """q and k as slices of one merged projection, another layout of heads, one table for two batches, a gradient that
    is expanded."""
    merged = normal(2, 5, (4 + 2 + 2) * 64)
    q, k, _ = merged.split([256, 128, 128], -1)
    q, k = q.unflatten(-1, (4, 64)), k.unflatten(-1, (2, 64))
    by_head = q.transpose(1, 2).contiguous().transpose(1, 2)
    weights = normal(64, seed=1), normal(64, seed=2)
    both = normal(5, 64, seed=3)
    tables = both[:, :32], both[:, 32:]
    grad = torch.ones((), dtype=BF16).expand(2, 5, 4, 64)
    gradients = grad, torch.zeros((), dtype=BF16).expand(2, 5, 2, 64)
    plain = q.contiguous(), k.contiguous(), *weights, *(t[None].expand(2, 5, 32).contiguous() for t in tables)
    calls = [Call("package", "qk_norm_rope", plain, tuple(g.contiguous() for g in gradients)),
             Call("package", "qk_norm_rope", (q, k, *weights, *tables), gradients),
             Call("package", "qk_norm_rope", (by_head, k, *weights, *tables), gradients)]
    first, *others = run_in_interpreter({"package": files}, calls)
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first.outputs, other.outputs))
        assert all(torch.equal(a, b) for a, b in zip(first.gradients, other.gradients) if a is not None)


@pytest.mark.parametrize("tokens", [0, 1])
def test_no_row_and_one_row(engine, files, package, tokens):
    calls = []
    for name, (_, emitted) in engine.items():
        shapes = {"rows": (1, tokens), "heads": (1, tokens, 3), "table": (1, tokens), "vector": (), "carry": (1, tokens)}
        inputs = tuple(normal(*shapes[t.shape], t.width, seed=i) for i, t in enumerate(emitted.signature.inputs))
        calls.append(Call("package", name, inputs, gradients_for(emitted, inputs)))
    for asked, answer in zip(calls, run_in_interpreter({"package": files}, calls)):
        here = call(package, asked)
        for t, a, b in zip(engine[asked.name][1].signature.outputs, answer.outputs, here.outputs):
            assert a.shape == b.shape and (t.shape == "carry" or torch.allclose(a.float(), b.float(), rtol=1e-2))
        for a, b in zip(answer.gradients, here.gradients):
            assert (a is None) == (b is None) and (a is None or a.shape == b.shape and torch.allclose(a.float(), b.float(), rtol=1e-2, atol=1e-6))
            if a is not None and tokens == 0:
                assert not a.numel() or not a.any()


def test_another_width_is_refused_in_one_line(package):
    with pytest.raises(ValueError, match="gate has rows of 300; this kernel was made for 512"):
        package.swiglu(normal(2, 300), normal(2, 300))
