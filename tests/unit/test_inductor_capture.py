"""CUDA code with no GPU: targets, bound inputs and outputs, provenance, and what cannot be compiled."""

import pytest

from graphdiff.capture.inductor import cuda_code_for_function, target_named
from graphdiff.capture.inductor import versions
from graphdiff.errors import GraphdiffError

torch = pytest.importorskip("torch")


def bf16(*shape):
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape).bfloat16()


def add_and_norm(x, weight, residual):
    h = x + residual
    v = h.float()
    return (v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + 1e-6)).bfloat16() * weight, h


@pytest.mark.parametrize("target", ["cuda:80", "cuda:90", "cuda:100"])
def test_code_is_for_the_target_and_nothing_is_left_behind(target):
    code = cuda_code_for_function(add_and_norm, (bf16(8, 256), bf16(256), bf16(8, 256)), target)
    assert code.text.count("@triton.jit") == 1 and f"cc={target[5:]}," in code.text
    assert not torch.cuda.is_available() or torch.cuda.get_device_capability()
    assert torch.compile(lambda x: x + 1)(torch.ones(3)).tolist() == [2, 2, 2]


def test_inputs_and_outputs_are_bound_to_the_functions():
    x, weight, residual = bf16(8, 256), bf16(256), bf16(8, 256)
    code = cuda_code_for_function(add_and_norm, (x, weight, residual), "cuda:90")
    assert [i.argument for i in code.inputs] == [0, 2, 1]
    assert [i.value is v for i, v in zip(code.inputs, (x, residual, weight), strict=True)] == [True] * 3
    assert [(o.kind, o.position) for o in code.outputs] == [("output", 0), ("output", 1)]
    (nodes,) = code.kernel_sources.values()
    assert {code.sources[node][0] for node in nodes} == {__file__}


def test_parameters_buffers_closures_and_passed_through_outputs():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(64, 64, bias=False)
            self.register_buffer("table", torch.ones(64))

        def forward(self, x):
            return {"y": self.inner(x) * self.table + constant, "x": x, "n": 3}

    constant = torch.full((64,), 2.0)
    code = cuda_code_for_function(Model(), (torch.ones(4, 64),), "cuda:90")
    assert {i.parameter for i in code.inputs} == {"inner.weight", "table", None}
    assert sum(i.argument is None and i.parameter is None for i in code.inputs) == 1
    kinds = [(o.kind, o.value) for o in code.outputs]
    assert kinds == [("output", None), ("input", None), ("constant", 3)]
    assert code.inputs[code.outputs[1].position].argument == 0


def test_an_input_that_the_function_writes_to_has_its_value_from_before():
    def bump(x):
        x.add_(1)
        return x * 2

    code = cuda_code_for_function(bump, (torch.ones(8),), "cuda:90")
    assert code.inputs[0].value.tolist() == [1] * 8


def test_autocast_is_that_of_cuda():
    weight = torch.ones(64, 64)

    def forward(x):
        with torch.autocast("cpu", torch.bfloat16):
            return x @ weight

    assert "torch.bfloat16" in cuda_code_for_function(forward, (torch.ones(4, 64),), "cuda:90").text


@pytest.mark.parametrize(("masked", "op"), [(False, "flash"), (True, "efficient")])
def test_attention_stays_one_op(masked, op):
    def attend(q, mask):
        mask = mask if masked else None
        return torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask, is_causal=not masked)

    mask = torch.ones(1, 1, 16, 16, dtype=torch.bool).tril()
    code = cuda_code_for_function(attend, (bf16(1, 4, 16, 64), mask), "cuda:90")
    assert f"_scaled_dot_product_{op}_attention" in code.text


def test_training_gives_forward_and_backward():
    weight = torch.nn.Parameter(torch.ones(64))

    def forward(x):
        return torch.nn.functional.silu(x) * weight

    code = cuda_code_for_function(forward, (torch.ones(4, 64),), "cuda:90", training=True)
    assert code.outputs[0].kind == "output" and code.backward is not None
    assert code.text.count("@triton.jit") == 1 and code.backward.text.count("@triton.jit") >= 1
    assert "tangents_1" in [i.name for i in code.backward.inputs]


def test_combo_kernels_tell_what_they_compute():
    def two(a, b):
        return a.float().mul(2).bfloat16(), b.float().add(3).bfloat16()

    inputs = (bf16(8, 256), bf16(5, 64))
    code = cuda_code_for_function(two, inputs, "cuda:90", config_patches={"combo_kernels": True})
    ((name, nodes),) = code.kernel_sources.items()
    assert code.text.count("@triton.jit") == 1 and name in code.text and {"mul", "add"} <= set(nodes)


def test_a_graph_break_is_named():
    def breaks(x):
        print(x.sum().item())
        return x

    with pytest.raises(GraphdiffError, match="cannot trace this function as one graph") as caught:
        cuda_code_for_function(breaks, (torch.ones(3),), "cuda:90")
    assert "breaks" in caught.value.where


def test_unknown_targets_and_torch_versions_are_refused(monkeypatch):
    with pytest.raises(GraphdiffError, match="give one of native, cuda:80, cuda:90, cuda:100"):
        target_named("cuda:75")
    monkeypatch.setattr(versions.importlib.metadata, "version", lambda name: "2.6.0")
    with pytest.raises(GraphdiffError, match="supported: torch 2.13"):
        versions.backend()


def test_no_compiler_and_a_failing_compiler_are_named(monkeypatch, tmp_path):
    from graphdiff.capture.inductor import device_guard

    monkeypatch.setenv("CXX", "/no/such/compiler")
    with pytest.raises(GraphdiffError, match="no C"):
        device_guard._compiler()
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(GraphdiffError, match="could not be compiled"):
        device_guard._build(tmp_path / "x.cpp", tmp_path)


def attention(causal, gradients=True):
    def attend(q, k, v, mask=None):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal) * 2.3

    q, k, v = bf16(1, 16, 4, 64).transpose(1, 2), bf16(1, 4, 16, 64), bf16(1, 4, 16, 64)
    mask = () if causal else (torch.zeros(1, 1, 16, 16).masked_fill(torch.ones(16, 16).triu(1).bool(), float("-inf")).bfloat16(),)
    return attend, tuple(t.requires_grad_(gradients) for t in (q, k, v)) + mask


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(("causal", "op"), [(True, "flash"), (False, "efficient")])
def test_attention_is_the_op_of_cuda_and_reads_what_eager_reads(causal, op, training):
    """With gradients it is traced as the CPU's op. Its result lies in memory as q does, or tokens first, not as it is numbered."""
    from graphdiff.capture.compiled import record_compiled
    from graphdiff.capture.function import Function, record_eager
    from graphdiff.program.evaluate import Evaluation

    attend, args = attention(causal, training)
    function = Function(attend, args, ("q", "k", "v", "mask")[: len(args)], __file__, "attend")
    recorded = record_compiled(function, "cuda:90", training=training)
    assert f"aten._scaled_dot_product_{op}_attention.default(" in recorded.sources["output_code"]
    plain = Function(attend, tuple(t.detach() for t in args), function.names, __file__, "attend")
    eager = record_eager(plain)
    found, expected = (Evaluation(r.program, r.bits).output(0).reshape(-1) for r in (recorded, eager))
    assert (found == expected).all() and len({float(x) for x in found}) > 100


def test_attention_that_cuda_would_run_otherwise_is_refused():
    from graphdiff.capture.compiled import record_compiled
    from graphdiff.capture.function import Function

    attend, args = attention(False)
    args = (*args[:3], args[3].requires_grad_())
    with pytest.raises(GraphdiffError, match="written out where it is traced"):
        record_compiled(Function(attend, args, ("q", "k", "v", "mask"), __file__, "attend"), "cuda:90", training=True)
    attend, args = attention(True)
    with pytest.raises(GraphdiffError, match="backward of fused attention"):
        record_compiled(Function(attend, args, ("q", "k", "v"), __file__, "attend"), "cuda:90", backward=True)


def test_memory_that_lies_otherwise_than_the_code_says_is_an_error(monkeypatch):
    from graphdiff.capture.compiled import record_compiled
    from graphdiff.capture.function import Function
    from graphdiff.lower.inductor import extern

    monkeypatch.setattr(extern, "like", lambda x: extern.fresh(x.shape, x.dtype))
    attend, args = attention(True, False)
    with pytest.raises(GraphdiffError, match=r"where the code states"):
        record_compiled(Function(attend, args, ("q", "k", "v"), __file__, "attend"), "cuda:90")
