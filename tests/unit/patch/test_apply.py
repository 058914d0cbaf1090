"""Applying and taking off: one model, all or nothing, identical objects back; what does not fit is refused in a line."""

import copy
import importlib.util
import inspect
import json
import shutil
import sys

import pytest
import torch
from patch_models import ALL, forwards, loss_of, tiny, tokens


def test_revert_gives_the_identical_objects_back(package, model):
    before = forwards(model)
    handle = package.apply(model, **ALL)
    assert package.is_applied(model) and handle.active and handle.parts == tuple(ALL)
    assert forwards(model) != before
    handle.revert()
    assert forwards(model) == before
    assert not package.is_applied(model) and not handle.active
    handle.revert()  # nothing more to do
    assert forwards(model) == before


def test_the_default_is_rope_alone(package, model):
    with package.apply(model) as handle:
        assert handle.parts == ("rope",)
        assert [n for n, m in model.named_modules() if "forward" in m.__dict__] == [
            "model.layers.0.self_attn",
            "model.layers.1.self_attn",
        ]


def test_another_model_and_transformers_are_untouched(package, model):
    other = tiny()
    before = forwards(other)
    with package.apply(model, **ALL):
        assert forwards(other) == before
        assert not package.is_applied(other)


def test_an_exception_inside_reverts(package, model):
    before = forwards(model)
    with pytest.raises(KeyError), package.apply(model, **ALL):
        raise KeyError
    assert forwards(model) == before


def test_outputs_change_under_the_patch_and_come_back(package, model):
    ids = tokens()
    with torch.no_grad():
        plain = model(input_ids=ids).logits
        with package.apply(model, **ALL):
            patched = model(input_ids=ids).logits
        again = model(input_ids=ids).logits
    assert patched.dtype == plain.dtype and not torch.equal(patched, plain)
    assert (patched - plain).abs().max() < 0.3
    assert torch.equal(again, plain)


def test_a_deep_copy_of_a_patched_model_is_patched_itself(package, model):
    with package.apply(model, **ALL):
        copied = copy.deepcopy(model)
    assert package.is_applied(copied) and not package.is_applied(model)
    ids = tokens()
    with torch.no_grad(), package.apply(model, **ALL):
        assert torch.equal(copied(input_ids=ids).logits, model(input_ids=ids).logits)


# ---- refusals
def refused(package, model, **parts):
    """The line of the refusal; nothing half applied."""
    before = forwards(model)
    with pytest.raises(package.PatchRefused) as caught:
        package.apply(model, **(parts or ALL))
    assert forwards(model) == before
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_second_apply_is_refused(package, model):
    with package.apply(model):
        assert "revert it first" in refused(package, model)
        assert "revert it first" in refused(package, model, rope=True)


def test_another_model_is_refused(package):
    assert "this patch is for Qwen3Model" in refused(package, tiny("llama-tiny"))


def test_another_transformers_is_refused(package, model, monkeypatch):
    import transformers

    monkeypatch.setattr(transformers, "__version__", "5.18.0")
    assert "5.18.0 runs" in refused(package, model)


def test_another_config_is_refused(package, model):
    model.config.num_key_value_heads = 1
    assert "num_key_value_heads 2" in refused(package, model)


def test_an_edited_source_file_is_refused(package, tmp_path, monkeypatch):
    name = "transformers.models.qwen3.modeling_qwen3"
    original = sys.modules[name]
    edited = tmp_path / "modeling_qwen3.py"
    text = inspect.getsource(original)
    assert "(rotate_half(q) * sin)" in text
    edited.write_text(text.replace("(rotate_half(q) * sin)", "(sin * rotate_half(q))"))
    spec = importlib.util.spec_from_file_location(name, edited)
    module = importlib.util.module_from_spec(spec)
    module.__package__ = "transformers.models.qwen3"
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    other = module.Qwen3ForCausalLM(tiny().config)
    assert "apply_rotary_pos_emb is not the source" in refused(package, other)


def test_a_class_patched_by_somebody_else_is_refused(package, model, monkeypatch):
    import transformers.models.qwen3.modeling_qwen3 as modeling

    monkeypatch.setattr(modeling.Qwen3MLP, "forward", lambda self, x: x)
    assert "Qwen3MLP.forward is not the source" in refused(package, model)
    package.apply(model).revert()  # RoPE does not need it


def test_a_module_with_a_forward_of_its_own_is_refused(package, model):
    mlp = model.model.layers[1].mlp
    mlp.forward = mlp.forward
    assert "layers.*.mlp has a forward of its own" in refused(package, model)


def test_a_module_of_another_class_is_refused(package, model):
    model.model.layers[1].self_attn.k_norm = torch.nn.Identity()
    assert "layers.*.self_attn.k_norm is a Identity" in refused(package, model)


def test_no_part_is_refused(package, model):
    assert "no part was asked for" in refused(package, model, rope=False)


@pytest.mark.parametrize(
    "damage", [lambda text: text[: len(text) // 2], lambda text: "[]", lambda text: text.replace('"hidden_size": 256', '"hidden_size": 512')]
)
def test_a_damaged_manifest_is_refused(folder, model, damage, tmp_path, monkeypatch):
    copied = tmp_path / "damaged_patch"
    shutil.copytree(folder, copied)
    file = copied / "manifest.json"
    assert damage(file.read_text()) != file.read_text()
    file.write_text(damage(file.read_text()))
    monkeypatch.syspath_prepend(tmp_path)
    for name in [n for n in sys.modules if n.partition(".")[0] == "damaged_patch"]:
        del sys.modules[name]
    package = importlib.import_module("damaged_patch")
    assert "manifest.json" in refused(package, model)


def test_the_change_is_rolled_back_if_it_fails_in_the_middle(package, model, monkeypatch):
    before = forwards(model)
    layer = type(model.model.layers[1])

    def stubborn(self, name, value):
        if name == "forward" and self is model.model.layers[1]:
            raise AttributeError(name)
        torch.nn.Module.__setattr__(self, name, value)

    monkeypatch.setattr(layer, "__setattr__", stubborn)
    with pytest.raises(AttributeError):
        package.apply(model, **ALL)
    assert forwards(model) == before


def test_revert_does_not_undo_what_came_after(package, model):
    handle = package.apply(model)
    attention = model.model.layers[0].self_attn
    ours = attention.forward
    attention.forward = lambda *a, **k: None
    with pytest.raises(package.PatchRefused, match="was replaced after the patch"):
        handle.revert()
    attention.forward = ours
    handle.revert()
    assert not package.is_applied(model)


# ---- what a model is used for besides training
def test_hidden_states_are_the_rounded_stream(package, model):
    ids = tokens()
    with torch.no_grad():
        plain = model(input_ids=ids, output_hidden_states=True).hidden_states
        with package.apply(model, **ALL):
            out = model(input_ids=ids, output_hidden_states=True)
            without = model(input_ids=ids)
            model.config.output_hidden_states = True
            configured = model(input_ids=ids)
    assert [h.dtype for h in out.hidden_states] == [h.dtype for h in plain]
    assert [h.shape for h in out.hidden_states] == [h.shape for h in plain]
    assert all((a - b).abs().max() < 0.1 for a, b in zip(out.hidden_states, plain, strict=True))
    assert torch.equal(out.logits, without.logits)
    assert all(torch.equal(a, b) for a, b in zip(out.hidden_states, configured.hidden_states, strict=True))


def test_generation_with_a_cache_equals_generation_without(package, model):
    model.eval()
    ids = tokens(1, 6)
    with torch.no_grad(), package.apply(model, **ALL):
        cached = model.generate(ids, max_new_tokens=8, do_sample=False)
        assert cached.shape == (1, 14)
        logits = model(input_ids=cached[:, :-1]).logits
    assert torch.equal(logits[:, 5:].argmax(-1), cached[:, 6:])


def test_forward_hooks_see_the_addends_and_the_sum_on_request(package, model):
    seen = []
    model.model.layers[0].register_forward_hook(lambda m, a, out: seen.append(out))
    ids = tokens()
    with torch.no_grad(), package.apply(model, residual_rmsnorm=True):
        model(input_ids=ids)
        hidden = model(input_ids=ids, output_hidden_states=True).hidden_states
    addends, shown = seen
    assert len(addends) == 3 and all(t.dtype == torch.bfloat16 for t in addends)
    d, o, r = (t.float() for t in addends)
    assert torch.equal(shown[0], (d + (o + r)).bfloat16()) and torch.equal(shown[0], hidden[1])


def test_state_dicts_are_the_same(package, model):
    before = model.state_dict()
    with package.apply(model, **ALL):
        after = model.state_dict()
    assert before.keys() == after.keys() and all(before[k].data_ptr() == after[k].data_ptr() for k in before)


def test_the_manifest_says_what_it_was_made_from(folder):
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["captures"]["inference"]["target"] == "cuda:90"
    assert len(manifest["captures"]["training"]["sha256"]) == 64
    assert {p: v["values"] for p, v in manifest["parts"].items()} == {
        "rope": {"layer": 8, "model": 0},
        "swiglu": {"layer": 1, "model": 0},
        "residual_rmsnorm": {"layer": 4, "model": 1},
    }
    assert manifest["uncovered"] == [] and manifest["absent"] == {}
    assert {r["part"] for r in manifest["regions"]} == set(manifest["parts"])


def test_the_package_imports_no_graphdiff(folder):
    for file in folder.rglob("*.py"):
        assert "import graphdiff" not in file.read_text() and "from graphdiff" not in file.read_text()


def test_gradients_flow_to_every_parameter(package, model):
    ids = tokens()
    loss_of(model, ids).backward()
    names = {n for n, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    with package.apply(model, **ALL):
        loss_of(model, ids).backward()
    assert {n for n, p in model.named_parameters() if p.grad is not None and p.grad.isfinite().all()} == names
