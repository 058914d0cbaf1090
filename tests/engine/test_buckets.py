"""Shape buckets: what the engine compiles for exactly one token (decode), against training and against its own prefill.

For one token coordinate descent is on and every matmul becomes a product and a sum in Triton, kept in FP32 where the
next operation uses it: 18 values more than for any number of tokens.
"""

from collections import Counter

import pytest
from expected import ADD, LAYER, found, moved, unfolded

pytestmark = pytest.mark.engine
pytest.importorskip("vllm")

WEIGHT = "self.weight * hidden_states.to(input_dtype)"
MLP = "self.act_fn(self.gate_proj(x)) * self.up_proj(x)"

# (module, source text, instances in two layers): what moves for one token only.
FURTHER = Counter([
    (f"{LAYER}.input_layernorm", WEIGHT, 2),
    (f"{LAYER}.self_attn.q_proj", "self.q_proj(hidden_states)", 2),
    (f"{LAYER}.self_attn.k_proj", "self.k_proj(hidden_states)", 2),
    (f"{LAYER}.self_attn.o_proj", "self.o_proj(attn_output)", 2),
    (f"{LAYER}.post_attention_layernorm", WEIGHT, 2),
    (f"{LAYER}.mlp.gate_proj", "self.gate_proj(x)", 2),
    (f"{LAYER}.mlp.up_proj", "self.up_proj(x)", 2),
    (f"{LAYER}.mlp", MLP, 2),
    (f"{LAYER}.mlp.down_proj", f"self.down_proj({MLP})", 2),
])

# The same between two schedules of one engine: (module, value, instances).
DECODE_AGAINST_PREFILL = Counter([
    ("layers.*.self_attn.qkv_proj", "qkv_proj(...)", 2),
    ("layers.*.self_attn.qkv_proj", "xhat * weight", 1),
    ("layers.*.self_attn.qkv_proj", "xhat * weight", 1),
    ("layers.*.self_attn.o_proj", "o_proj(...)", 2),
    ("layers.*.mlp.gate_up_proj", "xhat * weight", 2),
    ("layers.*.mlp.gate_up_proj", "gate_up_proj(...)", 2),
    ("layers.*.mlp.down_proj", "silu(gate) * up", 2),
    ("layers.*.mlp.down_proj", "down_proj(...)", 2),
])


@pytest.fixture(scope="module")
def compared(captures):
    """(inference, training) -> report, of the captures decode, prefill (both vLLM's, one token) and hf."""
    from graphdiff import pipeline

    one = captures.buckets("qwen3-tiny")
    files = {**one, "hf": captures.training("qwen3-tiny", tokens=1).path}
    return lambda inference, training: pipeline.compare(str(files[inference]), str(files[training]))


def assert_bitwise(report):
    assert all(r.witness.transplant_bitwise is True and r.witness.after.differing == 0 for r in report.regions)
    assert report.whole_program.transplant_bitwise is True and report.whole_program.differing > 0
    assert report.whole_program.arithmetic == "float32"


def test_one_token_moves_eighteen_values_more(compared):
    report = compared("decode", "hf")
    assert found(report) - moved("qwen3-tiny", 2) == FURTHER and not moved("qwen3-tiny", 2) - found(report)
    assert sum(n for _, _, n in FURTHER) == 18
    assert (report.summary.moved.training, report.summary.moved.inference) == (24, 0)
    assert (unfolded(report), unfolded(report, "inference")) == (45, 0)
    assert all(m.share == 1.0 for r in report.regions for m in r.moved)
    assert_bitwise(report)


def test_the_bucket_is_named(compared):
    report = compared("decode", "prefill")
    assert (report.inference.shapes, report.training.shapes) == ("1 token", "dynamic")


def test_the_products_of_a_matmul_are_all_that_has_no_counterpart(compared):
    report = compared("decode", "hf")
    assert report.summary.unmatched.training == 0 and {u.op for u in report.unmatched} == {"mul"}
    assert Counter(u.module.rsplit(".", 1)[-1] for u in report.unmatched) == Counter(
        ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"])


def test_the_dynamic_schedule_moves_no_more_on_one_token(compared):
    report = compared("prefill", "hf")
    assert found(report) == moved("qwen3-tiny", 2) and unfolded(report, "inference") == 0
    assert_bitwise(report)


def test_decode_against_prefill_of_one_engine(compared):
    """Merged projections count once here: 14 values over two layers, the 18 of above."""
    report = compared("decode", "prefill")
    assert Counter((m.module, m.value, m.instances) for r in report.regions for m in r.moved) == DECODE_AGAINST_PREFILL
    assert {m.rounded_in for r in report.regions for m in r.moved} == {"training"} and unfolded(report) == 14
    assert_bitwise(report)
    mirrored = compared("prefill", "decode")
    assert (unfolded(mirrored), unfolded(mirrored, "inference")) == (0, 14)
    assert_bitwise(mirrored)
