"""What the values of the public cases, and some of ours, are called, and which of them are one instance."""

from pathlib import Path

import pytest

pytest.importorskip("torch")
pipeline = pytest.importorskip("graphdiff.pipeline")

CASES = Path(__file__).parents[2] / "cases"

EXPECTED = {
    "public/01_qwen3_qknorm_rope": {"qk-norm-rope": [["xhat", "xhat * weight", "q * cos", "rotate_half(q) * sin"]]},
    "public/02_qwen2_rope": {"rope": [["q * cos", "rotate_half(q) * sin"], ["k * cos", "rotate_half(k) * sin"]]},
    "public/03_swiglu": {"gated-activation": [["silu(gate)"]]},
    "public/04_fused_add_rmsnorm": {"residual-rms-norm": [["x + residual"]]},
    "public/05_rmsnorm_weight_cast": {"rms-norm": [["xhat"]]},
    "public/06_gemma_norm_1plusw": {"norm-weight-offset": [["1 + w"]]},
    "public/07_gemma_embed_scale": {"embedding-scale": [["embedding scale"]]},
    "public/08_llama4_complex_rope": {"rope-table": [["cos", "sin"]]},
    "public/09_glm4_partial_rope": {"rope": [["q * cos", "rotate_half(q) * sin"]]},
    "public/10_gptoss_router": {"router-weights": [["router weights"]]},
    "public/12_deepseek_router": {"router-weights": [["router logits"]]},
    "public/13_geglu_tanh": {"gated-activation": [["gelu(g)"]]},
    "public/15_attn_softmax": {"attention-scores": [["scaled scores", "scores"]]},
    "public/17_fused_bias_add": {"bias-add": [["x @ W"]]},
    "public/18_lora_add": {"lora": [["scaled delta", "x @ A", "x @ A @ B"]]},
    "public/20_gated_rmsnorm": {"rms-norm": [["xhat", "xhat * weight"]]},
    "public/23_norm_fp8_quant": {"fp8-quantisation": [["xhat * weight"]]},
    "public/24_lm_head_logprob": {"logits": [["logits"]]},
    "public/25_prescaled_query": {"attention-scores": [["q * 0.0883883"]]},
    "public/28_elided_roundtrip_cast": {"elided-cast": [["x to BF16 and back"]]},
    "public/34_fused_add_rmsnorm_compiled": {"residual-rms-norm": [["x + residual", "xhat"]]},
    "more/210_partial_rope_neox": {"rope": [["q * cos", "rotate_half(q) * sin"]]},
    "more/234_gemma_norm_with_llama_casts": {"rms-norm": [["xhat", "1 + weight"]]},
    "more/237_residual_fp32_in_training": {"residual-rms-norm": [["x + residual"], ["x + residual"]]},
    "more/265_merged_cos_sin_cache_bf16": {"rope-table": [["cos", "sin"]]},
}


@pytest.mark.parametrize("case", EXPECTED)
def test_names(case):
    path = CASES / f"{case}.py"
    if not path.is_file():
        pytest.skip("no such case")
    report = pipeline.compare(f"{path}:inference", f"{path}:training", inputs=f"{path}:inputs")
    found = {}
    for region in report.regions:
        found.setdefault(region.rule, []).append([m.value for m in region.moved])
    assert {r: sorted(v) for r, v in found.items()} == {r: sorted(v) for r, v in EXPECTED[case].items()}
