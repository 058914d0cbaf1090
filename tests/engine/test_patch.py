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
    assert status == 0 and all(c["ok"] for c in checks.values()), checks
    places, bits = checks["rounding places"]["numbers"], checks["final hidden states"]["numbers"]
    assert (places["before"], places["after"], places["new"]) == (BEFORE[family], LEFT[parts][family], [])
    assert (bits["differing_after"] == 0) == (LEFT[parts][family] == 0)
    assert bits["differing_before"] > 0.7 * bits["elements"]


@pytest.mark.parametrize("family", BEFORE)
def test_nothing_is_left_out(patches, family):
    folder, _, plan = patches(family)
    assert plan.uncovered == [] and [p.part.name for p in plan.parts] == ["rope", "swiglu", "residual_rmsnorm"]
    assert json.loads((folder / "manifest.json").read_text())["kernels"]["missing"] == {}
