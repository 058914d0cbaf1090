"""Stack traces and Dynamo's names as places and dotted names."""

import pytest

from graphdiff.capture.fx_sources import dotted_name, layer_position, model_position

STACK = """\
  File "/env/site-packages/vllm/model_executor/models/qwen2.py", line 400, in forward
    hidden_states, residual = layer(positions, hidden_states, residual)
  File "/env/site-packages/vllm/model_executor/models/qwen3.py", line 249, in forward
    x = self.post_attention_layernorm(x)
  File "/env/site-packages/vllm/model_executor/layers/layernorm.py", line 90, in forward_native
    return ir.ops.fused_add_rms_norm(x)
  File "/env/site-packages/vllm/ir/op.py", line 524, in __call__
    return self.torch_op(*args, **kwargs)
"""


def test_a_node_is_placed_in_the_model_and_its_arithmetic_in_the_layer():
    assert model_position(STACK) == ("/env/site-packages/vllm/model_executor/models/qwen3.py", 249)
    assert layer_position(STACK) == ("/env/site-packages/vllm/model_executor/layers/layernorm.py", 90)


def test_a_matmul_is_placed_where_the_model_calls_its_layer():
    """On a CPU the layer calls an op of vLLM's, through a helper file of all such ops."""
    calls = '  File "/env/site-packages/vllm/model_executor/models/qwen3.py", line 160, in forward\n    qkv, _ = self.qkv_proj(hidden_states)\n' \
            '  File "/env/site-packages/vllm/model_executor/layers/utils.py", line 300, in <lambda>\n    ops.onednn_mm(handler, x, bias)\n' \
            '  File "/env/site-packages/vllm/_custom_ops.py", line 3758, in onednn_mm\n    torch.ops._C.onednn_mm(output)\n'
    assert model_position(calls) == ("/env/site-packages/vllm/model_executor/models/qwen3.py", 160)
    assert layer_position(calls) == ("/env/site-packages/vllm/model_executor/layers/utils.py", 300)


def test_a_stack_of_wrappers_alone_gives_its_innermost_frame_and_none_gives_nothing():
    wrapper = '  File "/env/site-packages/vllm/ir/op.py", line 524, in __call__\n    pass\n'
    assert model_position(wrapper) == layer_position(wrapper) == ("/env/site-packages/vllm/ir/op.py", 524)
    assert model_position("") is None and layer_position("") is None


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("L['self']._modules['layers']._modules['0']._parameters['weight']", "layers.0.weight"),
        ("L['self']._modules['rotary_emb']._buffers['cos_sin_cache']", "rotary_emb.cos_sin_cache"),
        ("L['input_ids']", "input_ids"),
        ("G['linear']._parameters['weight']", "linear.weight"),
        ("L['self'].layers[0].norm", "layers.0.norm"),
    ],
)
def test_dynamos_names_become_dotted_names(source, name):
    assert dotted_name(source) == name
