"""transformers' training forward as torch.compile makes it for CUDA, against the engine's kernels: other roundings than eager training."""

from pathlib import Path

import pytest

from graphdiff.errors import GraphdiffError
from graphdiff.pipeline import capture_transformers, compare_captures
from graphdiff.store import read_capture

pytest.importorskip("transformers")
pytest.importorskip("triton")

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "cuda-90" / "qwen3-tiny"


@pytest.fixture(scope="module", params=["eager", "sdpa"])
def compiled(request, tmp_path_factory):
    """With attention written out, and as one opaque op."""
    file = tmp_path_factory.mktemp("t") / "compiled.capture"
    engine = read_capture(FIXTURES / "vllm.capture").header
    capture_transformers("qwen3-tiny", file, layers=engine.model.layers, tokens=len(engine.probe.tokens), attn=request.param, compile=True, target="cuda:90")
    return read_capture(file)


def test_against_the_engine(compiled):
    report = compare_captures(read_capture(FIXTURES / "vllm.capture"), compiled)
    moved = {}
    for region in report.regions:
        for m in region.moved:
            moved.setdefault(region.rule, set()).add((m.value, m.rounded_in))
        assert region.witness.transplant_bitwise is True
    assert moved["residual-rms-norm"] == {("x + residual", "training")}, "saved for the backward, so rounded where it is read"
    assert moved["rope-table"] == {("cos", "inference"), ("sin", "inference")}, "the compiled trainer keeps its table in FP32 registers"
    assert "gated-activation" not in moved and "rms-norm" not in moved, "fused on both sides"
    assert (report.summary.moved.training, report.summary.moved.inference) == (4, 2)
    hidden = report.coverage.training.opaque
    assert hidden == (32 if "attention eager" in compiled.header.mode else 0), "what attention forms inside, where it is written out"
    assert (report.summary.unmatched.inference, report.summary.unmatched.training) == (0, 0)


def test_against_eager_training(compiled):
    report = compare_captures(compiled, read_capture(FIXTURES / "transformers.capture"))
    assert report.summary.moved.inference == 0 and report.summary.moved.training == 14
    assert compiled.header.target == "cuda:90" and all(k.kind == "triton" for k in compiled.header.kernels)


def test_refusals(tmp_path):
    for options in ({"attn": "eager", "autocast": "bfloat16"}, {"attn": "eager", "checkpointing": True}):
        with pytest.raises(GraphdiffError):
            capture_transformers("qwen3-tiny", tmp_path / "x.capture", compile=True, target="cuda:90", **options)
