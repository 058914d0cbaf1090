"""Models: shipped configs, synthetic checkpoints, fingerprints, and what is said when something is no model."""

import json
import shutil

import pytest

from graphdiff.capture.models import resolve_model, shipped_names
from graphdiff.errors import GraphdiffError

TINY = ("qwen3-tiny", "qwen2-tiny", "llama-tiny")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def weights_of(model):
    from safetensors.torch import load_file

    return load_file(model.path / "model.safetensors")


def test_shipped_names_are_the_papers_models_and_the_tiny_ones():
    assert set(shipped_names()) == {
        "r1-distill-qwen-1.5b", "qwen3-1.7b", "qwen3-4b-base", "qwen3-8b-base", *TINY,
    }  # fmt: skip


@pytest.mark.parametrize("name", TINY)
def test_a_synthetic_checkpoint_loads_in_transformers_with_every_weight(name):
    from transformers import AutoModelForCausalLM

    model = resolve_model(name)
    loaded, info = AutoModelForCausalLM.from_pretrained(model.path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    assert len(loaded.model.layers) == model.layers == 2
    assert model.synthetic


def test_the_same_name_and_seed_give_the_same_checkpoint_made_anew(tmp_path, monkeypatch):
    first = resolve_model("qwen3-tiny")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "elsewhere"))
    second = resolve_model("qwen3-tiny")
    assert first.path != second.path and first.fingerprint == second.fingerprint
    for name, tensor in weights_of(first).items():
        assert tensor.equal(weights_of(second)[name])


def test_a_checkpoint_is_made_once(tmp_path):
    model = resolve_model("qwen3-tiny")
    made = (model.path / "model.safetensors").stat().st_mtime_ns
    assert (resolve_model("qwen3-tiny").path / "model.safetensors").stat().st_mtime_ns == made


def test_seed_and_layers_change_the_fingerprint():
    models = [resolve_model("qwen3-tiny"), resolve_model("qwen3-tiny", seed=1), resolve_model("qwen3-tiny", layers=1)]
    assert len({m.fingerprint for m in models}) == 3
    assert [m.layers for m in models] == [2, 2, 1]


def test_weights_have_the_intended_spread():
    weights = weights_of(resolve_model("qwen2-tiny"))
    matrix = weights["model.layers.0.mlp.up_proj.weight"].float()
    norm = weights["model.layers.0.input_layernorm.weight"].float()
    bias = weights["model.layers.0.self_attn.q_proj.bias"].float()
    assert matrix.std().item() == pytest.approx(0.05, rel=0.05) and abs(matrix.mean().item()) < 1e-3
    assert norm.mean().item() == pytest.approx(1, abs=0.05) and norm.std().item() == pytest.approx(0.2, rel=0.2)
    assert bias.std().item() == pytest.approx(0.1, rel=0.2)


def test_a_copy_of_a_checkpoint_has_its_fingerprint_and_a_changed_weight_another(tmp_path):
    model = resolve_model("qwen3-tiny")
    copy = tmp_path / "copy"
    shutil.copytree(model.path, copy)
    found = resolve_model(str(copy))
    assert not found.synthetic and found.fingerprint == model.fingerprint
    with (copy / "model.safetensors").open("r+b") as file:
        file.seek(-2, 2)
        file.write(b"\x01\x02")
    assert resolve_model(str(copy)).fingerprint != model.fingerprint


def test_a_config_alone_gives_a_synthetic_checkpoint(tmp_path):
    shipped = resolve_model("qwen3-tiny")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(shipped.config))
    by_folder, by_file = resolve_model(str(folder)), resolve_model(str(folder / "config.json"))
    assert by_folder.synthetic and by_file.synthetic
    assert by_folder.name == "mine" and by_folder.path == by_file.path
    assert by_folder.fingerprint == shipped.fingerprint


def test_real_widths_are_kept_and_only_depth_and_vocabulary_shrink():
    from graphdiff.capture.models.resolve import _shipped
    from graphdiff.capture.models.synthetic import reduced_config

    config = json.loads(_shipped()["qwen3-8b-base"].read_text())
    reduced = reduced_config(config, 2)
    changed = {key for key in config if config[key] != reduced[key]}
    assert changed == {"num_hidden_layers", "max_window_layers", "vocab_size", "bos_token_id", "eos_token_id"}
    assert (reduced["hidden_size"], reduced["intermediate_size"], reduced["vocab_size"]) == (4096, 12288, 1024)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda d: "no-such-model", "unknown model 'no-such-model'"),
        (lambda d: "Qwen/Qwen3-8B-Base", "not fetched): download the checkpoint and give its folder; qwen3-8b-base is its config"),
        (lambda d: str(d), "no config.json"),
        (lambda d: _file(d, "weights.gguf", "x"), "no model"),
        (lambda d: _file(d, "some.json", "[1, 2]"), "no `model_type`"),
        (lambda d: _file(d, "some.json", "{"), "no readable model config"),
        (lambda d: _file(d, "some.json", '{"model_type": "no-such"}'), "num_hidden_layers"),
        (lambda d: _file(d, "some.json", '{"model_type": "no-such", "num_hidden_layers": 2}'), "cannot build"),
    ],
)
def test_what_is_no_model_is_named_with_a_way_out(tmp_path, make, says):
    with pytest.raises(GraphdiffError) as caught:
        resolve_model(make(tmp_path))
    assert says in str(caught.value) and caught.value.fix and "\n" not in str(caught.value)


def test_an_index_without_weights_is_an_error(tmp_path):
    _file(tmp_path, "config.json", json.dumps(resolve_model("qwen3-tiny").config))
    _file(tmp_path, "model.safetensors.index.json", "{}")
    with pytest.raises(GraphdiffError, match="no weights"):
        resolve_model(str(tmp_path))


def test_a_real_checkpoint_is_not_cut(tmp_path):
    shutil.copytree(resolve_model("qwen3-tiny").path, tmp_path / "real")
    with pytest.raises(GraphdiffError, match="cannot be cut"):
        resolve_model(str(tmp_path / "real"), layers=1)


def test_a_damaged_weight_file_is_named(tmp_path):
    folder = tmp_path / "real"
    shutil.copytree(resolve_model("qwen3-tiny").path, folder)
    (folder / "model.safetensors").write_bytes(b"not safetensors at all")
    with pytest.raises(GraphdiffError, match="no safetensors file"):
        resolve_model(str(folder))


def _file(folder, name, text):
    (folder / name).write_text(text)
    return str(folder / name)


def test_made_up_weights_are_no_quantised_ones(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"model_type": "qwen2", "num_hidden_layers": 2, "quantization_config": {"quant_method": "fp8"}}))
    with pytest.raises(GraphdiffError, match=r"asks for quantised weights \(fp8\)"):
        resolve_model(str(config))


@pytest.mark.parametrize("model_type, tied", [("gemma2", True), ("qwen3", False)])
def test_embeddings_are_untied_where_the_engine_has_a_head(model_type, tied):
    from graphdiff.capture.models.synthetic import reduced_config

    assert reduced_config({"model_type": model_type, "num_hidden_layers": 4, "tie_word_embeddings": True}, 2)["tie_word_embeddings"] is tied


@pytest.mark.parametrize("positions, long, length", [(131072, True, 4097), (131072, False, 128), (2048, True, 128)])
def test_the_engine_stays_on_the_configs_side_of_longrope(positions, long, length, tmp_path):
    from graphdiff.capture.vllm.vllm_0_32 import _model_length

    rope = {"rope_type": "longrope", "long_factor": [2.0]} if long else {"rope_type": "yarn", "factor": 4.0}
    (tmp_path / "config.json").write_text(json.dumps({
        "model_type": "phi3", "max_position_embeddings": positions, "rope_scaling": {**rope, "original_max_position_embeddings": 4096}}))
    assert _model_length(str(tmp_path)) == length


def test_what_a_trainer_leaves_out_names_no_engine():
    """Two trainers may be compared."""
    from graphdiff.capture.transformers import NOT_CAPTURED

    assert NOT_CAPTURED == ("lm_head and the loss: the base model is recorded, up to its last hidden state",)
