"""Models whose attention is not the plain one, and models of transformers that vLLM runs: every value meets, and is proved."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("vllm")

COMMON = {
    "vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
}
CONFIGS = {
    # scale 1/8 where the head size says 1/4, a soft cap that bends the scores, a window shorter than the probe
    "gemma2": {"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"], "head_dim": 16, "query_pre_attn_scalar": 64, "sliding_window": 4,
               "attn_logit_softcapping": 0.5, "final_logit_softcapping": 30.0, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": True,
               "layer_types": ["sliding_attention", "full_attention"]},
    "granite": {"model_type": "granite", "architectures": ["GraniteForCausalLM"], "attention_multiplier": 0.4, "residual_multiplier": 0.22,
                "embedding_multiplier": 12.0, "logits_scaling": 8.0},
    # no class of its own in vLLM: inputs are [1, tokens]
    "olmo2": {"model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"]},
}  # fmt: skip


@pytest.mark.parametrize("name, attn", [("gemma2", "eager"), ("granite", None), ("olmo2", None)])
def test_every_value_meets_and_is_proved(name, attn, tmp_path):
    from graphdiff import pipeline
    from graphdiff.store import read_capture

    config = tmp_path / "config.json"
    config.write_text(json.dumps({**COMMON, **CONFIGS[name]}))
    pipeline.capture_transformers(str(config), tmp_path / "t.capture", attn=attn)
    pipeline.capture_vllm(str(config), tmp_path / "v.capture")
    report = pipeline.compare_captures(*(read_capture(tmp_path / f"{side}.capture") for side in "vt"))
    assert (report.summary.unmatched.inference, report.summary.unmatched.training) == (0, 0)
    assert report.summary.moved.inference == 0 and report.summary.moved.training >= 5
    assert all(r.witness.transplant_bitwise is True for r in report.regions) and report.whole_program.transplant_bitwise is True
