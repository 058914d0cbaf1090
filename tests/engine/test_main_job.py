"""The main job on real vLLM and real transformers: what moves, nothing more, nothing less, proven on bits."""

from collections import Counter

import pytest
from expected import LAYER, assert_proven, found, moved, unfolded

pytestmark = pytest.mark.engine
pytest.importorskip("vllm")

# (model, layers, combo kernels) -> folded, unfolded
TABLE = [
    ("qwen3-tiny", 2, True, 15, 27),
    ("qwen3-tiny", 2, False, 15, 27),
    ("qwen2-tiny", 2, True, 11, 19),
    ("llama-tiny", 2, True, 11, 19),
    ("qwen3-tiny", 16, True, 15, 209),
]


@pytest.mark.parametrize(("name", "layers", "combo", "folded", "all_layers"), TABLE)
def test_the_table_value_by_value(reports, name, layers, combo, folded, all_layers):
    report = reports(name, layers if layers != 2 else None, combo)
    assert found(report) == moved(name, layers)
    assert (report.summary.moved.training, report.summary.moved.inference) == (folded, 0)
    assert (unfolded(report), unfolded(report, "inference")) == (all_layers, 0)
    assert report.summary.unmatched.inference == report.summary.unmatched.training == 0
    assert not report.unmatched and not report.opaque and not report.notes
    assert all(m.share == 1.0 for r in report.regions for m in r.moved)
    assert {m.dtype for r in report.regions for m in r.moved} == {"bfloat16"}
    assert_proven(report)


def test_regions_have_names_mechanisms_and_places(reports):
    report = reports("qwen3-tiny")
    assert Counter(r.rule for r in report.regions) == {"qk-norm-rope": 2, "residual-rms-norm": 3, "gated-activation": 1}
    assert [r.instances for r in report.regions if r.rule == "gated-activation"] == [2]
    assert {m.mechanism for r in report.regions for m in r.moved} <= {
        "fused into one kernel", "store reused from a register", "recomputed from inputs"}
    for entry in (m for r in report.regions for m in r.moved):
        assert entry.training.file.endswith("modeling_qwen3.py") and entry.training.line and entry.inference.kernel.startswith("triton_")
        assert entry.confidence > 0.95


def test_eager_attention_is_opaque_on_the_engines_side_not_moved(reports):
    report = reports("qwen3-tiny", attn="eager")
    assert found(report) == moved("qwen3-tiny", 2) and unfolded(report, "inference") == 0
    assert {(o.side, o.module, o.count) for o in report.opaque} == {("training", f"{LAYER}.self_attn", 2)}
    assert {o.value for o in report.opaque} == {"torch.matmul(query, key_states.transpose(2, 3))",
                                               "nn.functional.softmax(attn_weights, dim=-1, dtype=torch.float32)"}
    assert report.summary.unmatched.inference == report.summary.unmatched.training == 0 and not report.notes
    assert_proven(report)


def test_checkpointing_has_the_same_schedule(reports):
    report = reports("qwen3-tiny", checkpointing=True)
    assert found(report) == moved("qwen3-tiny", 2)
    assert_proven(report)


def test_autocast_over_float32_weights_is_a_schedule_of_its_own(reports):
    """float32 weights make embedding, residual stream, norms and RoPE float32; inputs of linear layers are rounded at use.

    Rounded in training only: xhat of the q and k norms (cast back to the linear layer's BF16) and silu(gate). In
    inference only: the residual as stored between layers, the final norm's output, and the cos/sin table.
    """
    report = reports("qwen3-tiny", autocast="bfloat16")
    training, inference = found(report), found(report, "inference")
    assert training == {k: 1 for k in moved("qwen3-tiny", 2)
                        if k[0].endswith((".q_norm", ".k_norm")) and "rsqrt" in k[1] or k[0].endswith(".act_fn")}
    tables = [m for r in report.regions for m in r.moved if m.mechanism == "table dtype"]
    assert {(m.formed_in("training").text, m.rounded_in) for m in tables} == {("emb.cos()", "inference"), ("emb.sin()", "inference")}
    rest = Counter(m.formed_in("training").text for r in report.regions for m in r.moved if m.rounded_in == "inference" and m.mechanism != "table dtype")
    assert rest == {"residual + hidden_states": 1, "self.weight * hidden_states.to(input_dtype)": 1}
    assert (unfolded(report), unfolded(report, "inference")) == (6, 4), inference
    assert any(r.rule == "rope-table" for r in report.regions)
    assert_proven(report)


@pytest.mark.parametrize("side", ["engine", "training"])
def test_a_side_against_itself(captures, side):
    one = getattr(captures, side)("qwen3-tiny")
    report = captures.report(one, one)
    assert report.verdict == "same" and report.exit_status == 0
    assert report.summary.moved.training == report.summary.moved.inference == 0 and not report.regions
    assert report.summary.unmatched.inference == report.summary.unmatched.training == 0
    assert report.whole_program.differing == 0


def test_two_captures_of_a_side_are_equal_bytes(captures, tmp_path):
    """Also from a child process, as the command line makes them."""
    from graphdiff import pipeline

    pipeline.capture_transformers("qwen3-tiny", tmp_path / "hf")
    assert (tmp_path / "hf").read_bytes() == captures.training("qwen3-tiny").path.read_bytes()
    pipeline.capture_vllm("qwen3-tiny", tmp_path / "vllm")
    assert (tmp_path / "vllm").read_bytes() == captures.engine("qwen3-tiny").path.read_bytes()


@pytest.mark.parametrize(("name", "layers"), [("qwen3-tiny", None), ("qwen2-tiny", None), ("llama-tiny", None), ("qwen3-tiny", 16)])
def test_the_training_program_under_the_engines_schedule_is_the_engines_program(captures, name, layers):
    """With real weights, anchors computed and not pinned: the final hidden states of the two, bit for bit."""
    from graphdiff.compare.diff import diff_sides
    from graphdiff.compare.prepare import sides_of
    from graphdiff.compare.transplant import Bench
    from graphdiff.compare.witness import prove_program
    from graphdiff.store import read_capture

    engine, training, wide = sides_of(*(read_capture(made.weights) for made in (
        captures.engine(name, layers=layers), captures.training(name, layers=layers))))
    proof = prove_program(Bench(diff_sides(engine, training), wide, anchors="computed"))
    assert proof.bitwise is True and proof.arithmetic == "float32" and proof.after.elements == 8 * 256
    assert 0.02 < 1 - proof.before.differing / proof.before.elements < 0.25
