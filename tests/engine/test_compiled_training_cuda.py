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


def test_the_backward_is_in_one_program_with_its_forward():
    """Gradients of every weight, near those of eager training for the same gradient of the last hidden state."""
    import numpy as np
    import torch

    from graphdiff.capture.models import resolve_model
    from graphdiff.capture.probe_tokens import probe_tokens
    from graphdiff.capture.transformers import load_model
    from graphdiff.capture.transformers_cuda import record_cuda_training
    from graphdiff.program.dtypes import decode
    from graphdiff.program.evaluate import Evaluation

    model = resolve_model("qwen3-tiny")
    ids, places = probe_tokens(model.config, 8)
    recorded = record_cuda_training(model, ids, places, "cuda:90", backward=True)
    program = recorded.builder.program
    assert set(recorded.sources) == {"forward", "backward"} == {s.code for s in program.sites if s.code}
    evaluation = Evaluation(program, recorded.builder.leaf_bits)
    tangent = next(n for n, node in enumerate(program.nodes) if node.op == "leaf" and node.attrs["name"] == "grad_output0")
    gradient = decode(recorded.builder.leaf_bits[tangent], "bfloat16").reshape(program.nodes[tangent].shape)

    causal = load_model(model, attn="eager", autocast=None)
    causal.base_model(input_ids=torch.tensor([ids]), position_ids=torch.tensor([places]), use_cache=False).last_hidden_state.backward(
        torch.from_numpy(gradient).bfloat16())
    wanted = {f"grad_{name}": p.grad.float().numpy() for name, p in causal.named_parameters() if p.grad is not None}
    found = {o.name: evaluation.output(i) for i, o in enumerate(program.outputs)}
    assert set(found) == {"hidden_states", *wanted} and len(wanted) > 20
    for name, want in wanted.items():
        apart = np.linalg.norm(found[name].reshape(want.shape) - want) / np.linalg.norm(want)
        assert apart < 0.05, (name, apart)


def test_a_backward_that_cuda_would_run_otherwise_is_refused(tmp_path):
    with pytest.raises(GraphdiffError, match="backward of fused attention"):
        capture_transformers("qwen3-tiny", tmp_path / "x.capture", compile=True, target="cuda:90", attn="sdpa", backward=True)
    with pytest.raises(GraphdiffError, match="as it is compiled only"):
        capture_transformers("qwen3-tiny", tmp_path / "x.capture", backward=True)
