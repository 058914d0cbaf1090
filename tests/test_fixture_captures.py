"""The four models of the paper at their real widths, from the captures kept in the repository: no engine, no torch."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphdiff import pipeline
from graphdiff.store import read_capture

ROOT = Path(__file__).resolve().parent.parent / "fixtures" / "cuda-90"
QWEN3 = {
    ("qk-norm-rope", "model.layers.*.self_attn.q_norm", "xhat"), ("qk-norm-rope", "model.layers.*.self_attn.q_norm", "xhat * weight"),
    ("qk-norm-rope", "model.layers.*.self_attn", "q * cos"), ("qk-norm-rope", "model.layers.*.self_attn", "rotate_half(q) * sin"),
    ("qk-norm-rope", "model.layers.*.self_attn.k_norm", "xhat"), ("qk-norm-rope", "model.layers.*.self_attn.k_norm", "xhat * weight"),
    ("qk-norm-rope", "model.layers.*.self_attn", "k * cos"), ("qk-norm-rope", "model.layers.*.self_attn", "rotate_half(k) * sin"),
}
QWEN2 = {
    ("rope", "model.layers.*.self_attn", "q * cos"), ("rope", "model.layers.*.self_attn", "rotate_half(q) * sin"),
    ("rope", "model.layers.*.self_attn", "k * cos"), ("rope", "model.layers.*.self_attn", "rotate_half(k) * sin"),
}


def report_of(model: str):
    captures = [read_capture(ROOT / model / f"{side}.capture") for side in ("vllm", "transformers")]
    return pipeline.compare_captures(*captures)


@pytest.mark.parametrize(("model", "rotation"), [("r1-distill-qwen-1.5b", QWEN2), ("qwen3-1.7b", QWEN3), ("qwen3-4b-base", QWEN3),
                                                  ("qwen3-8b-base", QWEN3)])
def test_moved_roundings_of_the_papers_models(model: str, rotation: set) -> None:
    report = report_of(model)
    assert (report.summary.moved.training, report.summary.moved.inference) == (len(rotation) + 7, 0)
    assert (report.summary.unmatched.training, report.summary.unmatched.inference) == (0, 0)
    found = {(r.rule, m.module, m.value) for r in report.regions for m in r.moved}
    assert {f for f in found if "rope" in f[0]} == rotation
    gated = [m for r in report.regions if r.rule == "gated-activation" for m in r.moved]
    assert [(m.value, m.instances) for m in gated] == [("silu(gate)", 2)]
    norms = [(m.value, m.instances) for r in report.regions if "rms-norm" in (r.rule or "") for m in r.moved]
    assert sorted(norms) == [("x + residual", 1), ("x + residual", 1), ("x + residual", 2),  # final, next layer's, after attention
                             ("xhat", 1), ("xhat", 2), ("xhat", 2)]


@pytest.mark.parametrize("model", ["r1-distill-qwen-1.5b", "qwen3-1.7b", "qwen3-4b-base", "qwen3-8b-base"])
def test_every_region_is_proved_on_bits(model: str) -> None:
    report = report_of(model)
    assert all(r.witness.transplant_bitwise for r in report.regions)
    assert all(0 < r.witness.differing < r.witness.elements for r in report.regions)
    assert report.whole_program.transplant_bitwise and report.whole_program.before.differing > 0


@pytest.mark.parametrize(("model", "file", "line"), [("r1-distill-qwen-1.5b", "transformers/models/qwen2/modeling_qwen2.py", 244),
                                                    ("qwen3-1.7b", "transformers/models/qwen3/modeling_qwen3.py", 63)])
@pytest.mark.parametrize("swapped", [False, True])
def test_the_line_that_rounds_is_the_cast_and_not_where_the_value_is_formed(model: str, file: str, line: int, swapped: bool) -> None:
    captures = [read_capture(ROOT / model / f"{side}.capture") for side in ("vllm", "transformers")]
    report = pipeline.compare_captures(*(captures[::-1] if swapped else captures))
    moved = [m for r in report.regions for m in r.moved]
    rounded_in = "inference" if swapped else "training"
    assert {m.rounded_in for m in moved} == {rounded_in}
    for m in moved:
        own, other = (m.inference, m.training) if swapped else (m.training, m.inference)
        assert " round" in own.node and own.file == m.formed.file == file and other.file.startswith("vllm/model_executor/models/qwen")
        if m.value == "xhat":
            assert (own.line, own.text, own.kernel) == (line, "hidden_states.to(input_dtype)", "aten._to_copy")
            assert (m.formed.line, m.formed.text) == (line - 1, "hidden_states * torch.rsqrt(variance + self.variance_epsilon)")
        else:  # eager ops round their own result
            assert (own.line, own.column, own.kernel, own.text) == (m.formed.line, m.formed.column, m.formed.kernel, m.formed.text)


def test_show_names_values_and_tells_roundings_from_copies() -> None:
    training, engine = (pipeline.show(ROOT / "qwen3-tiny" / f"{side}.capture") for side in ("transformers", "vllm"))
    assert training["schema"] == engine["schema"] == 1
    rows = {(r["value"], r["kernel"]): r for r in training["roundings"]}
    assert rows["-x2", "aten.neg"]["changes bits"] is False
    assert rows["xhat", "aten._to_copy"]["changes bits"] is True
    assert rows["xhat", "aten._to_copy"]["where"] == "transformers/models/qwen3/modeling_qwen3.py:63"
    assert all(isinstance(r["changes bits"], bool) and not r["where"].startswith("/") for r in training["roundings"] + engine["roundings"])
    names = [r["value"] for r in engine["roundings"]]
    assert {"qkv_proj(...)", "silu(gate) * up", "x + residual", "xhat * weight", "attention output", "token embedding"} <= set(names)
    assert all(names) and not any(name.startswith("buf") for name in names)


@pytest.mark.parametrize("side", ["vllm", "transformers"])
def test_a_side_against_itself_finds_nothing(side: str) -> None:
    capture = read_capture(ROOT / "qwen3-1.7b" / f"{side}.capture")
    report = pipeline.compare_captures(capture, capture)
    assert (report.verdict, report.exit_status, report.regions) == ("same", 0, [])
