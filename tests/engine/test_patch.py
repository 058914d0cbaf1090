"""The patch against the real engine: counts left per set of parts, final bits with the same anchors, whole families."""

import json

import pytest

from graphdiff import pipeline
from graphdiff.cli.main import main

pytestmark = pytest.mark.engine
pytest.importorskip("vllm")

# part sets -> moved values left, layers not folded (facts/end_to_end.md: 27 / 11 / 25 / 18 / 2 / 0)
LEFT = {
    "rope": {"qwen3": 11, "qwen2": 11, "llama": 11},
    "swiglu": {"qwen3": 25, "qwen2": 17, "llama": 17},
    "residual_rmsnorm": {"qwen3": 18, "qwen2": 10, "llama": 10},
    "rope,residual_rmsnorm": {"qwen3": 2, "qwen2": 2, "llama": 2},
    "rope,swiglu,residual_rmsnorm": {"qwen3": 0, "qwen2": 0, "llama": 0},
}
BEFORE = {"qwen3": 27, "qwen2": 19, "llama": 19}


@pytest.fixture(scope="module")
def patches(captures, tmp_path_factory):
    made = {}

    def patch(family):
        if family not in made:
            name = f"{family}-tiny"
            engine, training = captures.engine(name), captures.training(name)
            out = tmp_path_factory.mktemp("patch") / f"{family}_rounding"
            plan, _ = pipeline.patch(engine.path, training.path, out)
            made[family] = (out, engine.weights, plan)
        return made[family]

    return patch


@pytest.mark.parametrize("family", BEFORE)
@pytest.mark.parametrize("parts", LEFT)
def test_moved_values_left_and_final_bits(patches, family, parts, capsys):
    folder, engine, _ = patches(family)
    status = main(["verify", str(folder), "--model", f"{family}-tiny", "--inference", str(engine), "--parts", parts, "--format", "json"])
    found = json.loads(capsys.readouterr().out)
    checks = {c["name"]: c for c in found["checks"]}
    left = LEFT[parts][family]
    assert status == 0 and all(c["ok"] or left and c["ok"] is None and n == "final hidden states" for n, c in checks.items()), checks
    places, bits = checks["rounding places"]["numbers"], checks["final hidden states"]["numbers"]
    assert (places["before"], places["after"], places["new"]) == (BEFORE[family], left, [])
    assert (bits["differing_after"] == 0) == (left == 0)
    assert bits["differing_before"] > 0.7 * bits["elements"]


@pytest.mark.parametrize("family", BEFORE)
def test_nothing_is_left_out(patches, family):
    folder, _, plan = patches(family)
    assert plan.uncovered == [] and [p.part.name for p in plan.parts] == ["rope", "swiglu", "residual_rmsnorm"]
    assert json.loads((folder / "manifest.json").read_text())["kernels"]["missing"] == {}


def proved(folder, model, engine, capsys, *options):
    status = main(["verify", str(folder), "--model", str(model), "--inference", str(engine), "--format", "json", *options])
    printed = capsys.readouterr()
    assert printed.out, printed.err
    checks = {c["name"]: c for c in json.loads(printed.out)["checks"]}
    assert status == 0 and all(c["ok"] is not False for c in checks.values()), checks
    return checks


@pytest.mark.slow
def test_a_patch_made_from_two_layers_holds_for_four(patches, captures, capsys):
    folder, _, _ = patches("qwen3")
    engine = captures.engine("qwen3-tiny", layers=4)
    checks = proved(folder, "qwen3-tiny", engine.weights, capsys, "--layers", "4")
    assert checks["rounding places"]["numbers"] == {"before": 53, "after": 0, "aligned": 53, "new": []}
    assert checks["final hidden states"]["numbers"]["differing_after"] == 0


@pytest.mark.slow
def test_mistral(tmp_path, capsys):
    """The recipe's fourth model: Llama's config under another name."""
    from graphdiff.capture.models.resolve import _shipped

    config = json.loads(_shipped()["llama-tiny"].read_text())
    config |= {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": None}
    model = tmp_path / "mistral-tiny" / "config.json"
    model.parent.mkdir()
    model.write_text(json.dumps({k: v for k, v in config.items() if k not in ("mlp_bias", "attention_bias")}))
    engine, training = tmp_path / "engine.capture", tmp_path / "training.capture"
    pipeline.capture_vllm(str(model), engine, keep_weights=True)
    pipeline.capture_transformers(str(model), training)
    plan, _ = pipeline.patch(engine, training, tmp_path / "mistral_rounding")
    assert [p.part.name for p in plan.parts] == ["rope", "swiglu", "residual_rmsnorm"], plan.uncovered
    checks = proved(tmp_path / "mistral_rounding", model, engine, capsys)
    assert checks["rounding places"]["numbers"] == {"before": 19, "after": 0, "aligned": 19, "new": []}
    assert checks["final hidden states"]["numbers"]["differing_after"] == 0


@pytest.mark.slow
def test_the_schedule_of_this_cpu(captures, tmp_path, capsys):
    """Compiled natively, the engine never rounds the stream between these layers: the patch carries every addend."""
    engine, training = tmp_path / "engine.capture", captures.training("qwen3-tiny")
    pipeline.capture_vllm("qwen3-tiny", engine, target="native", keep_weights=True)
    plan, _ = pipeline.patch(engine, training.path, tmp_path / "native_rounding")
    assert plan.uncovered == [] and not plan.parts[2].schedule["stream"]
    checks = proved(tmp_path / "native_rounding", "qwen3-tiny", engine, capsys)
    assert checks["rounding places"]["numbers"]["after"] == 0
    assert checks["final hidden states"]["numbers"]["differing_after"] == 0
