"""FX graphs of an engine as data: references apart from constants, and what an input is."""

import operator

import pytest

torch = pytest.importorskip("torch")

from graphdiff.capture.vllm.describe import described_inputs, described_nodes  # noqa: E402
from graphdiff.capture.vllm.raw import Ref  # noqa: E402

WEIGHT = "l_self_modules_layers_modules_0_modules_q_norm_parameters_weight_"


class LayerName:
    """As the engine passes the name of a layer."""

    value = "model.layers.0.self_attn.attn"


@pytest.fixture
def graph():
    made = torch.fx.Graph()
    names = ("s72", "l_input_ids_", WEIGHT, "synthetic_local_tmp_0_")
    size, ids, weight, layer = (made.placeholder(name) for name in names)
    doubled = made.call_function(torch.ops.aten.mul.Tensor, (weight, 2.0))
    first = made.call_function(operator.getitem, ((doubled, layer), 0))
    shaped = made.call_method("view", (first, (size, -1)), {})
    moved = made.call_function(torch.add, (shaped, ids), {"alpha": 2, "out": torch.float32})
    made.output((moved,))
    return made


def test_references_are_told_apart_from_constants(graph):
    nodes = {node.name: node for node in described_nodes(graph)}
    assert nodes["mul_tensor"].target == "aten.mul" and nodes["mul_tensor"].args == (Ref(WEIGHT), 2.0)
    assert nodes["getitem"].target == "operator.getitem"
    assert nodes["getitem"].args == ((Ref("mul_tensor"), Ref("synthetic_local_tmp_0_")), 0)
    assert nodes["view"].op == "call_method" and nodes["view"].args == (Ref("getitem"), (Ref("s72"), -1))
    assert nodes["add"].kwargs == {"alpha": 2, "out": "torch.float32"}
    assert nodes["output"].args == ((Ref("add"),),)


def test_inputs_are_sizes_inputs_parameters_and_names(graph):
    weight = torch.nn.Parameter(torch.ones(3).bfloat16())
    inputs, parameters = described_inputs(graph, [256, torch.zeros(256, dtype=torch.int32), weight, LayerName()])
    assert [(i.kind, i.path, i.value) for i in inputs] == [
        ("size", "", "256"),
        ("input", "input_ids", ""),
        ("parameter", "layers.0.q_norm.weight", ""),
        ("other", "", "model.layers.0.self_attn.attn"),
    ]
    assert list(parameters) == [WEIGHT] and not parameters[WEIGHT].requires_grad
    assert (inputs[2].dtype, inputs[2].shape) == ("bfloat16", (3,))
