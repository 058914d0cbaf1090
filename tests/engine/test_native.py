"""This machine's own schedules: predicted bits against the running engine and the compiled training forward, kernel by
kernel, and the 2x2 of engines and trainers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "support" / "native_run.py"
sys.path.insert(0, str(SCRIPT.parent))


def kernel_bits(what, model="qwen3-tiny"):
    done = subprocess.run([sys.executable, str(SCRIPT), what, model], capture_output=True, text=True, timeout=1200, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("BITS ")]
    assert lines, done.stderr[-2000:]
    return json.loads(lines[0][5:])


@pytest.mark.parametrize("what, directions", [("engine", ["forward"]), ("engine-pieces", ["forward"]), ("training", ["forward", "backward"]),
                                               ("eager-attention", ["forward", "backward"])])
def test_predicted_bits_are_the_running_kernels(what, directions):
    if what.startswith("engine"):
        pytest.importorskip("vllm")
    found = kernel_bits(what)
    for direction in directions:
        low = [b for b in found if b["dtype"] == "bfloat16" and b["direction"].startswith(direction)]
        assert len(low) > 10
        wrong, elements = sum(b["differing"] for b in low), sum(b["elements"] for b in low)
        assert elements > 100_000 and wrong / elements < 1e-4, [b for b in low if b["differing"]]
        for b in low:  # a sum's last float32 bit decides a tie, or what is left where two terms cancel: an element or two of a kernel
            assert b["differing"] <= max(2, b["elements"] * 1e-4) and (b["worst"] <= 1 or b["of_largest"] < 0.1), b
    for b in found:
        if b["dtype"] == "float32":  # sums in another order; those of a backward have both signs
            assert b["worst" if b["direction"].startswith("forward") else "of_largest"] <= 16, b


@pytest.fixture(scope="module")
def eager():
    pytest.importorskip("vllm")
    return kernel_bits("eager-engine")


def test_predicted_bits_are_the_running_eager_engines_ops(eager):
    """Each ATen op and each custom C++ op alone, on the numbers that it got in the running engine."""
    computing = [b for b in eager["ops"] if b["computes"]]
    assert {b["op"] for b in computing} == set(eager["kernels"]), "the captured program has the ops that ran"
    assert {"_C.rotary_embedding", "_C.onednn_mm", "aten.silu", "aten.rsqrt"} <= {b["op"] for b in computing}
    for op in {b["op"] for b in computing}:
        low = [b for b in computing if b["op"] == op and b["dtype"] == "bfloat16"]
        wrong, elements = sum(b["differing"] for b in low), sum(b["elements"] for b in low)
        if any(b["anchor"] for b in low):  # sums of matmuls and attention are in an order of their own
            assert wrong <= elements * 1e-3, (op, wrong, elements)
        else:
            assert wrong <= elements * 1e-4, (op, wrong, elements)
    assert sum(b["elements"] for b in computing if b["dtype"] == "bfloat16" and not b["anchor"]) > 200_000
    for b in computing:
        if b["dtype"] == "float32":
            assert b["worst"] <= 4, b


def test_the_eager_program_gives_the_running_engines_bits(eager):
    """From token ids to the last hidden state, with the engine's own matmuls and attention in their places."""
    hidden = eager["hidden"]
    assert hidden["elements"] == 40 * 256 and hidden["differing"] <= 1


def test_an_op_with_a_wrong_rule_is_seen(monkeypatch):
    from eager_bits import EachOp

    from graphdiff.lower.aten import composite

    def differing():
        x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
        with EachOp({}) as mode:
            torch.nn.functional.silu(x) * x
        return {b.op: b.differing for b in mode.found if b.computes}

    assert differing() == {"aten.silu": 0, "aten.mul": 0}

    def rounds_inside(r, func, args, kwargs, out):
        x, b = r.of(args[0]), r.builder
        return b.op("mul", x, b.round(composite.sigmoid(r, x), "bfloat16"))

    monkeypatch.setitem(composite.RULES, "silu", rounds_inside)
    assert differing()["aten.silu"] > 100


@pytest.mark.parametrize("attn", ["eager", "sdpa"])
def test_gradients_of_the_captured_backward(tmp_path, attn):
    """Forward and backward are wired as autograd has them: each gradient is eager's, up to bfloat16's noise (2.3 % of its length at most)."""
    from graphdiff.capture.models import resolve_model
    from graphdiff.capture.transformers import load_model
    from graphdiff.pipeline import capture_transformers
    from graphdiff.program import Evaluation
    from graphdiff.program.dtypes import decode
    from graphdiff.store import read_capture

    capture_transformers("qwen3-tiny", tmp_path / "backward.capture", attn=attn, compile=True, backward=True, keep_weights=True)
    capture = read_capture(tmp_path / "backward.capture")
    program, probe = capture.program, capture.header.probe
    assert capture.header.mode == f"torch.compile with gradients, Inductor's C++ code, forward and backward, attention {attn}"
    assert any("opaque" in note and "backward" in note for note in capture.header.notes) == (attn == "sdpa")
    assert {k.code for k in capture.header.kernels} == {"forward", "backward"}
    (tangent,) = [i for i, n in enumerate(program.nodes) if n.op == "leaf" and n.attrs.get("name") == "grad_output0"]
    given = torch.from_numpy(decode(program.data[tangent], "bfloat16").reshape(program.nodes[tangent].shape).astype("float32")).bfloat16()
    causal = load_model(resolve_model("qwen3-tiny"), attn=attn, autocast=None)
    causal.base_model(input_ids=torch.tensor([probe.tokens]), position_ids=torch.tensor([probe.positions]), use_cache=False).last_hidden_state.backward(given)
    real = {f"grad_{name}": p.grad.float().numpy() for name, p in causal.named_parameters() if p.grad is not None}
    evaluation = Evaluation(program, program.data)
    assert {o.name for o in program.outputs} == {"hidden_states", *real}
    for i, o in enumerate(program.outputs):
        if o.name != "hidden_states":
            off = evaluation.output(i) - real[o.name]
            assert (off ** 2).sum() ** 0.5 <= 0.05 * (real[o.name] ** 2).sum() ** 0.5, o.name


@pytest.fixture(scope="module")
def cells(captures):
    pytest.importorskip("vllm")
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import two_by_two

    return two_by_two.cells("qwen3-tiny", captures.folder / "two-by-two")


def values(report, side):
    return sorted({m["value"] for r in report["regions"] for m in r["moved"] if m["rounded_in"] == side})


def test_every_cell_is_matched_and_proven(cells):
    for pair, report in cells.items():
        summary = report["summary"]
        assert summary["unmatched"] == {"inference": 0, "training": 0}, (pair, summary)
        assert all(r["witness"]["transplant_bitwise"] is True for r in report["regions"]), pair


def test_moved_roundings_of_each_cell(cells):
    moved = {pair: report["summary"]["moved"] for pair, report in cells.items()}
    assert moved["vLLM compiled", "HF eager"]["inference"] == 0 and moved["vLLM eager", "HF eager"]["inference"] == 0
    compiled, eager = values(cells["vLLM compiled", "HF eager"], "training"), values(cells["vLLM eager", "HF eager"], "training")
    assert {"silu(gate)", "xhat", "q * cos", "x + residual"} <= set(compiled)
    assert {"x + residual", "q * cos"} <= set(eager) and not {"silu(gate)", "xhat"} & set(eager)
    pieces = values(cells["vLLM in pieces", "HF eager"], "training")
    assert set(compiled) == set(pieces) and moved["vLLM in pieces", "HF eager"] == moved["vLLM compiled", "HF eager"]
    both = moved["vLLM compiled", "HF compiled"]
    assert both["training"] + both["inference"] < moved["vLLM compiled", "HF eager"]["training"]


def test_a_mode_that_does_not_exist_is_refused(tmp_path):
    from graphdiff import pipeline
    from graphdiff.errors import GraphdiffError

    pytest.importorskip("vllm")
    for options in ({"target": "cuda:90", "mode": "eager"}, {"target": "native", "mode": "fast"}, {"target": "native", "bucket": 1},
                    {"target": "cuda:90", "mode": "vllm_compile"}, {"target": "native", "mode": "vllm_compile", "graph_partition": True}):
        with pytest.raises(GraphdiffError):
            pipeline.capture_vllm("qwen3-tiny", tmp_path / "x.capture", **options)
