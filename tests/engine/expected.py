"""What moves between vLLM's compiled path and the transformers forward, value by value (the facts this was built on).

A line is (module, source text of what training rounds, how often it stands in a model of `layers` layers). The sum of
the decoder layer is two values: one goes into the next layer's norm, the last one into the final norm.
"""

from collections import Counter

NORM = "hidden_states * torch.rsqrt(variance + self.variance_epsilon)"
ADD = "residual + hidden_states"
LAYER = "model.layers.*"


def _qk_norm(which: str, layers: int) -> list[tuple[str, str, int]]:
    module = f"{LAYER}.self_attn.{which}_norm"
    return [(module, NORM, layers), (module, "self.weight * hidden_states.to(input_dtype)", layers)]


def _rope(layers: int) -> list[tuple[str, str, int]]:
    return [(f"{LAYER}.self_attn", text.format(x), layers) for x in "qk" for text in ("{} * cos", "rotate_half({}) * sin")]


def moved(name: str, layers: int) -> Counter:
    """(module, text, instances) of every value that only training rounds."""
    lines = [
        (f"{LAYER}.input_layernorm", NORM, layers),
        (LAYER, ADD, layers - 1),
        (LAYER, ADD, layers),
        (f"{LAYER}.post_attention_layernorm", NORM, layers),
        (f"{LAYER}.mlp.act_fn", "self.act_fn(self.gate_proj(x))", layers),
        (LAYER, ADD, 1),
        ("model.norm", NORM, 1),
        *_rope(layers),
    ]
    if name.startswith("qwen3"):
        lines += _qk_norm("q", layers) + _qk_norm("k", layers)
    return Counter(lines)


def found(report, side: str = "training") -> Counter:
    """The same lines of a report."""
    return Counter((m.module, m.formed_in("training").text, m.instances) for r in report.regions for m in r.moved if m.rounded_in == side)


def unfolded(report, side: str = "training") -> int:
    return sum(m.instances for r in report.regions for m in r.moved if m.rounded_in == side)


def assert_proven(report) -> None:
    """Every region and the whole program bit for bit under inference's schedule, and different before."""
    assert all(r.witness.transplant_bitwise is True and r.witness.differing > 0 for r in report.regions), [r.witness for r in report.regions]
    assert report.whole_program.transplant_bitwise is True and report.whole_program.differing > 0
    assert report.whole_program.arithmetic == "float32"
