"""emulate_precision_casts on whole models: an engine compiled with it, and compiled training, against eager training.

In the engine it restores all but the residual sum, which vLLM's own fused_add_rms_norm forms in FP32 and does not round
before the norm. In training nothing is left.
"""

import pytest
from expected import ADD, LAYER, assert_proven, found, unfolded

from graphdiff import pipeline

pytestmark = pytest.mark.engine
pytest.importorskip("vllm")
SWITCH = ("emulate_precision_casts=true",)


@pytest.mark.parametrize("target", ["cuda:90", "native"])
def test_an_engine_compiled_with_it(target, captures, tmp_path):
    pipeline.capture_vllm("qwen3-tiny", tmp_path / "on.capture", target=target, inductor=SWITCH)
    report = pipeline.compare(str(tmp_path / "on.capture"), str(captures.training("qwen3-tiny").path))
    assert report.inference.inductor == {"emulate_precision_casts": True}
    assert found(report) == {(LAYER, ADD, 2): 1, (LAYER, ADD, 1): 2} and unfolded(report, "inference") == 0
    assert_proven(report)


@pytest.mark.parametrize(("target", "attn"), [("cuda:90", "eager"), ("native", "sdpa")])
def test_training_compiled_with_it_rounds_as_eager_training(target, attn, captures, tmp_path):
    pipeline.capture_transformers("qwen3-tiny", tmp_path / "on.capture", compile=True, target=target, inductor=SWITCH)
    eager = captures.training("qwen3-tiny", attn=attn).path
    report = pipeline.compare(str(tmp_path / "on.capture"), str(eager))
    assert report.inference.inductor == {"emulate_precision_casts": True} and report.verdict == "same"
    assert (report.summary.unmatched.inference, report.summary.unmatched.training) == (0, 0)
    assert report.whole_program.transplant_bitwise is True and report.whole_program.differing == 0
