"""The operators inside torch: chained through the carried sum, compiled, checkpointed, under autocast, frozen weights."""

import pytest
import torch
from emit_functions import TOKENS, normal
from emitted import load_package
from tiny_engine import tiny_qwen3
from torch.utils.checkpoint import checkpoint

from graphdiff.emit import emit_package, emit_region, extract_regions
from graphdiff.lower.inductor import program_from_pieces

BF16 = torch.bfloat16
HIDDEN = 256


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    regions, _ = extract_regions(program_from_pieces(tiny_qwen3("combo"))[0], TOKENS)
    files = emit_package([emit_region(r, namespace="test_operators") for r in regions])
    return load_package(files, tmp_path_factory.mktemp("package"), "operators_under_test")


class Block(torch.nn.Module):
    """One decoder layer's residual regions and MLP between linear anchors; addends in, addends out."""

    def __init__(self, kernels):
        super().__init__()
        self.kernels = [kernels]
        linear = lambda a, b: torch.nn.Linear(a, b, bias=False, dtype=BF16)  # noqa: E731
        self.o, self.gate, self.up, self.down = linear(HIDDEN, HIDDEN), linear(HIDDEN, 512), linear(HIDDEN, 512), linear(512, HIDDEN)
        self.norm = torch.nn.Parameter(normal(HIDDEN, seed=11))
        self.post = torch.nn.Parameter(normal(HIDDEN, seed=12))

    def forward(self, *addends):
        (kernels,) = self.kernels
        if len(addends) == 1:
            residual, x = addends[0], kernels.rms_norm(addends[0], self.norm)
        else:
            residual, x = kernels.input_layernorm(*addends, self.norm)
        attn = self.o(x)
        y, carry = kernels.post_attention_layernorm(attn, residual, self.post)
        return self.down(kernels.swiglu(self.gate(y), self.up(y))), attn, residual, carry


class Stack(torch.nn.Module):
    def __init__(self, kernels, layers=3, checkpointed=False):
        super().__init__()
        torch.manual_seed(0)
        self.kernels, self.checkpointed = [kernels], checkpointed
        self.layers = torch.nn.ModuleList(Block(kernels) for _ in range(layers))
        self.norm = torch.nn.Parameter(normal(HIDDEN, seed=13))

    def forward(self, x):
        addends = (x,)
        for layer in self.layers:
            addends = checkpoint(layer, *addends, use_reentrant=False) if self.checkpointed else layer(*addends)
        return self.kernels[0].final_norm(*addends, self.norm)


def in_fp64(model, x):
    """The same stack with one residual stream, nothing rounded, differentiated by autograd."""
    wide = Stack(model.kernels[0])
    wide.load_state_dict(model.state_dict())
    wide.double()
    x = x.detach().double().requires_grad_()

    def norm(h, w):
        return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6) * w

    h = x
    for layer in wide.layers:
        h = h + layer.o(norm(h, layer.norm))
        y = norm(h, layer.post)
        h = h + layer.down(torch.nn.functional.silu(layer.gate(y)) * layer.up(y))
    return wide, x, norm(h, wide.norm)


def gradients(model, x, weight):
    model.zero_grad()
    x = x.detach().requires_grad_()
    out = model(x)
    (out.float() * weight).sum().backward()
    return out.detach(), {"x": x.grad, **{n: p.grad for n, p in model.named_parameters()}}


@pytest.fixture(scope="module")
def plain(package):
    x, weight = normal(2, 6, HIDDEN, seed=1), torch.randn(2, 6, HIDDEN, generator=torch.Generator().manual_seed(2))
    model = Stack(package)
    return x, weight, model, *gradients(model, x, weight)


def test_gradients_through_the_carried_sum_are_those_of_one_stream(plain):
    x, weight, model, _, made = plain
    wide, x64, out = in_fp64(model, x)
    (out * weight.double()).sum().backward()
    wanted = {"x": x64.grad, **{n: p.grad for n, p in wide.named_parameters()}}
    for name, want in wanted.items():
        error = (made[name].double() - want).norm() / want.norm()
        assert error < 0.02, (name, error)


def test_checkpointing_changes_no_bit(package, plain):
    x, weight, _, out, made = plain
    again, grads = gradients(Stack(package, checkpointed=True), x, weight)
    assert torch.equal(again, out)
    assert all(torch.equal(grads[n], made[n]) for n in made)


def test_a_compiled_model_changes_no_bit(package, plain):
    x, weight, model, out, made = plain
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    again, grads = gradients(compiled, x, weight)
    assert torch.equal(again, out)
    assert all(torch.equal(grads[n.replace("_orig_mod.", "")] if n in grads else grads[f"_orig_mod.{n}"], made[n]) for n in made)


def test_frozen_weights_get_no_gradient(package, plain):
    x, weight, _, out, made = plain
    model = Stack(package)
    for name, p in model.named_parameters():
        p.requires_grad_("norm" not in name and "post" not in name)
    again, grads = gradients(model, x, weight)
    assert torch.equal(again, out) and torch.equal(grads["x"], made["x"])
    assert grads["norm"] is None and grads["layers.0.post"] is None


def test_autocast_over_fp32_weights_rounds_in_the_same_places(package, plain):
    x, weight, _, _, _ = plain
    model = Stack(package).float()
    with torch.autocast("cpu", BF16):
        out = model(x)
    assert out.dtype == BF16
    (out.float() * weight).sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 and torch.isfinite(p.grad).all() for p in model.parameters())


def test_the_registered_operators_pass_torchs_own_check(package):
    rows = lambda seed, grad=True: normal(2, 3, HIDDEN, seed=seed).requires_grad_(grad)  # noqa: E731
    weight = normal(HIDDEN, seed=5).requires_grad_()
    samples = {
        "rms_norm": (rows(0), weight),
        "swiglu": (normal(2, 3, 512).requires_grad_(), normal(2, 3, 512, seed=1).requires_grad_()),
        "qk_norm_rope": (normal(2, 3, 4, 64).requires_grad_(), normal(2, 3, 2, 64).requires_grad_(), normal(64).requires_grad_(),
                         normal(64, seed=1).requires_grad_(), normal(2, 3, 32), normal(2, 3, 32, seed=1)),
        "final_norm": (rows(0), rows(1, False), rows(2, False), torch.zeros((), dtype=BF16).expand(2, 3, HIDDEN).requires_grad_(), weight),
    }
    for name, sample in samples.items():
        operator = getattr(torch.ops.test_operators, name)
        torch.library.opcheck(operator.default, sample, test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))
