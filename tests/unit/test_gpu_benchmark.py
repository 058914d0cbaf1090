"""benchmarks/gpu.py up to its CUDA calls: the dry run, a patch that is wrong, a machine without CUDA, a spent budget."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]
OPS = {"qk_norm_rope", "swiglu", "post_attention_norm", "input_norm", "first_norm", "final_norm"}


def gpu(*arguments):
    return subprocess.run([sys.executable, str(ROOT / "benchmarks" / "gpu.py"), *map(str, arguments)], capture_output=True, text=True, timeout=300)


def written(folder):
    (file,) = folder.glob("gpu-*-cpu-dry-run.json")
    return json.loads(file.read_text()), file.with_suffix(".md").read_text()


@pytest.mark.slow
def test_dry_run(tmp_path):
    done = gpu("--dry-run", "--output", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found, table = written(tmp_path)
    assert found["dry_run"] and set(found["correctness"]) == OPS
    for c in found["correctness"].values():
        assert c["wrong"] == [] and len(c["forward"]) == 6 and c["forward"]["random"]["0"] > 0
    assert set(found["times"]) == {*OPS, "decoder layer"}
    for variants in found["times"].values():
        assert {"HF eager", "unfused FP32", "patch"} <= set(variants)
        assert variants["patch"]["bytes"] < variants["HF eager"]["bytes"] < variants["unfused FP32"]["bytes"]
    assert any("torch.compile" in s for s in found["skipped"]) and all(s in table for s in found["skipped"])
    assert "its times say nothing" in table and "| decoder layer | patch |" in table


@pytest.mark.slow
def test_a_wrong_operator_is_status_1(tmp_path):
    from graphdiff import pipeline

    captures = ROOT / "fixtures" / "cuda-90" / "qwen3-tiny"
    patch = tmp_path / "wrong_patch"
    pipeline.patch(captures / "vllm.capture", captures / "transformers.capture", patch)
    file = patch / "kernels" / "gated_activation.py"
    assert "ctx.save_for_backward(gate, up)" in file.read_text()
    file.write_text(file.read_text().replace("ctx.save_for_backward(gate, up)", "ctx.save_for_backward(up, gate)"))
    done = gpu("--dry-run", "--package", patch, "--output", tmp_path)
    assert done.returncode == 1 and "swiglu" in done.stdout and "WRONG: gradients differ" in done.stdout
    assert [op for op, c in written(tmp_path)[0]["correctness"].items() if c["wrong"]] == ["swiglu"]


def test_a_spent_budget_stops_it(tmp_path):
    done = gpu("--dry-run", "--budget", "0", "--output", tmp_path)
    assert done.returncode == 1  # nothing was shown to be right
    found, _ = written(tmp_path)
    assert not found["correctness"] and not found["times"] and all("time budget is spent" in s for s in found["skipped"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="has CUDA")
def test_without_cuda(tmp_path):
    done = gpu("--output", tmp_path)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and not list(tmp_path.iterdir())
