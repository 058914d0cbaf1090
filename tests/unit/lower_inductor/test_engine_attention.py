"""What a layer of the engine asks of attention, against the same spelled out in numpy."""

from types import SimpleNamespace

import numpy as np
import pytest

from graphdiff.errors import GraphdiffError
from graphdiff.lower.inductor.engine_attention import AttentionLayer, attended
from graphdiff.program import Builder, Evaluation

TOKENS, HEADS, GROUPS, SIZE = 6, 4, 2, 8


def numbers(*shape, seed=0):
    return np.random.default_rng(seed + sum(shape)).standard_normal(shape).astype(np.float32)


def by_program(layer, q, k, v):
    b = Builder()
    leaves = [b.leaf(name, x, "float32", dynamic=True) for name, x in zip("qkv", (q, k, v))]
    b.output("y", attended(b, layer, *leaves, "attention"))
    return Evaluation(b.program, b.leaf_bits).output(0)


def by_hand(q, k, v, *, scale=SIZE ** -0.5, window=0, cap=0.0, slopes=None, sinks=None):
    y = np.zeros((TOKENS, HEADS, v.shape[-1]))
    for h in range(HEADS):
        g = h // (HEADS // GROUPS)
        for i in range(TOKENS):
            seen = [j for j in range(i + 1) if not window or i - j < window]
            s = np.array([float(q[i, h] @ k[j, g]) * scale for j in seen])
            s = cap * np.tanh(s / cap) if cap else s
            s = s + (slopes[h] * (np.array(seen) - i) if slopes else 0)
            total = np.exp(s).sum() + (np.exp(sinks[h]) if sinks else 0)
            y[i, h] = (np.exp(s) / total) @ v[seen, g]
    return y


@pytest.mark.parametrize("asked, same", [
    ({}, {}), ({"scale": 0.3}, {"scale": 0.3}), ({"window": 3}, {"window": 3}), ({"window": TOKENS}, {}), ({"soft_cap": 0.7}, {"cap": 0.7}),
    ({"slopes": (0.5, 0.25, 0.125, 0.0625)}, {"slopes": (0.5, 0.25, 0.125, 0.0625)}), ({"sinks": (0.1, -1.0, 2.0, 0.0)}, {"sinks": (0.1, -1.0, 2.0, 0.0)}),
    ({"scale": 0.2, "window": 2, "soft_cap": 1.5, "sinks": (1.0,) * 4}, {"scale": 0.2, "window": 2, "cap": 1.5, "sinks": (1.0,) * 4}),
], ids=str)  # fmt: skip
def test_scale_window_soft_cap_alibi_and_sinks(asked, same):
    q, k, v = numbers(TOKENS, HEADS, SIZE), numbers(TOKENS, GROUPS, SIZE, seed=1), numbers(TOKENS, GROUPS, 5, seed=2)
    np.testing.assert_allclose(by_program(AttentionLayer(**asked), q, k, v), by_hand(q, k, v, **same), rtol=1e-5, atol=1e-6)


def test_what_has_no_lowering_is_refused():
    q, k = numbers(TOKENS, HEADS, SIZE), numbers(TOKENS, GROUPS, SIZE)
    with pytest.raises(GraphdiffError, match="no lowering for attention of type encoder"):
        by_program(AttentionLayer(refused="attention of type encoder"), q, k, k)
    with pytest.raises(GraphdiffError, match="attention over shapes"):
        by_program(AttentionLayer(), q, numbers(2 * TOKENS, GROUPS, SIZE), numbers(2 * TOKENS, GROUPS, SIZE))
    with pytest.raises(GraphdiffError, match="attention over shapes"):
        by_program(AttentionLayer(), q, numbers(TOKENS, 3, SIZE), numbers(TOKENS, 3, SIZE))


class Attention(SimpleNamespace):
    """Named as the engine's class is."""


def test_layers_are_described_as_their_backend_runs_them():
    from graphdiff.capture.vllm.vllm_0_32_attention import attention_layers

    impl = {"scale": 0.25, "sliding_window": -1, "logits_soft_cap": 0, "alibi_slopes": None, "sinks": None, "kv_sharing_target_layer_name": None}
    layers = {
        "plain": Attention(attn_type="decoder", impl=SimpleNamespace(**impl)),
        "flash": Attention(attn_type="decoder", impl=SimpleNamespace(**{**impl, "sliding_window": (3, 0), "logits_soft_cap": 30.0})),
        "flash all": Attention(attn_type="decoder", impl=SimpleNamespace(**{**impl, "sliding_window": (-1, -1), "sinks": [0.5, 1.0]})),
        "cpu": Attention(attn_type="decoder", impl=SimpleNamespace(**{**impl, "sliding_window": 4, "alibi_slopes": [0.5]})),
        "encoder": Attention(attn_type="encoder_only", impl=SimpleNamespace(**impl)),
        "sharing": Attention(attn_type="decoder", impl=SimpleNamespace(**{**impl, "kv_sharing_target_layer_name": "plain"})),
        "state space": SimpleNamespace(),
    }
    found = attention_layers(SimpleNamespace(compilation_config=SimpleNamespace(static_forward_context=layers)))
    assert found["plain"] == AttentionLayer(scale=0.25)
    assert found["flash"] == AttentionLayer(scale=0.25, window=4, soft_cap=30.0)
    assert found["flash all"] == AttentionLayer(scale=0.25, sinks=(0.5, 1.0))
    assert found["cpu"] == AttentionLayer(scale=0.25, window=4, slopes=(0.5,))
    assert found["encoder"].refused and found["sharing"].refused and found["state space"].refused


def test_the_probe_takes_the_shape_of_the_engines_inputs():
    from graphdiff.capture.vllm.program import probe_input
    from graphdiff.capture.vllm.raw import RawInput

    ids, places = [5, 6, 7], [0, 1, 2]
    flat = probe_input(RawInput("a", "input", path="input_ids", dtype="int32", shape=("s0",)), ids, places)
    batched = probe_input(RawInput("b", "input", path="kwargs.position_ids", dtype="int64", shape=(1, "s0")), ids, places)
    assert (flat.shape, flat.dtype, flat.storage.values.tolist()) == ((3,), "int32", ids)
    assert (batched.shape, batched.dtype, batched.storage.values.tolist()) == ((1, 3), "int64", places)
    with pytest.raises(GraphdiffError, match="has an input inputs_embeds"):
        probe_input(RawInput("c", "input", path="inputs_embeds", dtype="bfloat16", shape=("s0", 8)), ids, places)
