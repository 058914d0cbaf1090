"""Training with the patch: losses fall as without it, gradients are those of plain autograd, and wrappers keep working."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from patch_models import ALL, forwards, loss_of, tiny, tokens

STEPS = 300


def grads(model, ids, **options):
    model.zero_grad(set_to_none=True)
    loss = loss_of(model, ids, **options)
    loss.backward()
    found = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return loss.detach(), found


def train(model, steps):
    """Losses of a memorising run, the same data every time."""
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-4)
    losses = []
    for step in range(steps):
        optimiser.zero_grad()
        loss = loss_of(model, tokens(2, 16, seed=step % 4))
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


@pytest.mark.slow
def test_three_hundred_steps_with_and_without(package):
    one, two = tiny(), tiny()
    before = forwards(two)
    plain = train(one, STEPS)
    with package.apply(two, **ALL):
        patched = train(two, STEPS)
    assert forwards(two) == before
    assert all(torch.tensor(losses).isfinite().all() for losses in (plain, patched))
    assert patched[-1] < 0.5 * patched[0] and abs(patched[-1] - plain[-1]) < 0.25 * plain[0]


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_gives_the_same_bits(package, model, reentrant):
    ids = tokens()
    with package.apply(model, **ALL):
        loss, plain = grads(model, ids)
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
        if reentrant:
            model.enable_input_require_grads()
        again, checkpointed = grads(model, ids)
        _, shown = grads(model, ids, output_hidden_states=True)
    assert torch.equal(loss, again) and plain.keys() == checkpointed.keys()
    assert all(torch.equal(plain[n], checkpointed[n]) for n in plain)
    assert shown.keys() == plain.keys() and all(torch.equal(plain[n], shown[n]) for n in plain)


def test_operators_give_the_gradients_of_plain_torch(package, model, monkeypatch):
    """What runs on a GPU and under torch.compile, on its CPU path."""
    ids = tokens()
    with package.apply(model, **ALL):
        loss, plain = grads(model, ids)
        monkeypatch.setattr(sys.modules[f"{package.__name__}.ops"],
                            "_fused", lambda x: True)
        fused_loss, fused = grads(model, ids)
        for reentrant in (False, True):
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
            model.enable_input_require_grads()
            _, checkpointed = grads(model, ids)
            assert all(torch.equal(fused[n], checkpointed[n]) for n in fused)
        model.gradient_checkpointing_disable()
        hidden = model(input_ids=ids, output_hidden_states=True).hidden_states
    assert abs(loss - fused_loss) < 1e-3 and len(hidden) == 3
    for name, g in plain.items():
        apart = (fused[name].float() - g.float()).norm() / g.float().norm()
        assert apart < 0.03, name


@pytest.mark.slow
def test_compiled_gradients_agree(package, model):
    ids = tokens(1, 8)
    with package.apply(model, **ALL):
        loss, plain = grads(model, ids)
        compiled = torch.compile(model)
        compiled_loss, found = grads(compiled, ids)
        torch._dynamo.reset()
    found = {n.removeprefix("_orig_mod."): g for n, g in found.items()}
    assert abs(loss - compiled_loss) < 5e-3 and found.keys() == plain.keys()
    for name, g in plain.items():
        assert (found[name].float() - g.float()).norm() < 0.05 * g.float().norm(), name


def test_lora(package, model):
    peft = pytest.importorskip("peft")
    wrapped = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"]))
    before = forwards(wrapped)
    with package.apply(wrapped, **ALL):
        losses = train(wrapped, 20)
    assert torch.tensor(losses).isfinite().all() and losses[-1] < losses[0]
    assert forwards(wrapped) == before


def test_autocast_over_float32_weights_runs(package, model):
    model.float()
    ids = tokens()
    with package.apply(model, **ALL), torch.autocast("cpu", dtype=torch.bfloat16):
        loss, found = grads(model, ids)
    assert loss.isfinite() and all(g.isfinite().all() for g in found.values())


def test_float32_is_left_unrounded(package, model):
    model.float()
    ids = tokens()
    loss, plain = grads(model, ids)
    with package.apply(model, **ALL):
        patched_loss, patched = grads(model, ids)
    assert abs(loss - patched_loss) < 1e-5
    assert all((patched[n] - plain[n]).norm() < 1e-4 * plain[n].norm() for n in plain)


@pytest.mark.slow
def test_fsdp2_with_two_processes(folder):
    script = Path(__file__).with_name("fsdp_worker.py")
    done = subprocess.run([sys.executable, str(script), str(folder)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "equal" in done.stdout
