"""The proof: what it says of a good patch, and that it notices a bad one."""

import json
import shutil

import pytest
from patch_models import CAPTURES

from graphdiff.cli.main import main

ENGINE = ["--inference", str(CAPTURES[0])]


def verify(folder, capsys, *options):
    status = main(["verify", str(folder), "--model", "qwen3-tiny", *ENGINE, "--format", "json", *options])
    out = capsys.readouterr()
    found = json.loads(out.out) if out.out else {"checks": []}
    return status, {c["name"]: c for c in found["checks"]}, out.err


@pytest.fixture
def copied(folder, tmp_path):
    target = tmp_path / "bad_patch"
    shutil.copytree(folder, target)

    def edit(name, old, new):
        file = target / name
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))
        return target

    return edit


def test_everything_is_proved(folder, capsys):
    status, checks, _ = verify(folder, capsys)
    assert status == 0
    assert all(c["ok"] for c in checks.values())
    assert "anchors pinned" in checks["final hidden states"]["detail"]  # the fixture keeps no weights
    assert checks["final hidden states"]["numbers"]["differing_after"] == 0 < checks["final hidden states"]["numbers"]["differing_before"]
    assert checks["rounding places"]["numbers"] == {"before": 27, "after": 0, "aligned": 27, "new": []}


@pytest.mark.parametrize(("parts", "left"), [("rope", 11), ("swiglu", 25), ("residual_rmsnorm", 18), ("rope,residual_rmsnorm", 2)])
def test_moved_values_left_per_part(folder, capsys, parts, left):
    """facts/end_to_end.md: 27 without a patch."""
    status, checks, _ = verify(folder, capsys, "--parts", parts)
    assert status == 0 and checks["rounding places"]["numbers"]["after"] == left


@pytest.mark.parametrize(
    ("name", "old", "new", "check"),
    [
        ("plain.py", "x = weight.float() * x", "x = _rounded(weight.float() * x, dtype)", "rounding places"),
        ("plain.py", "silu(gate.float())", "silu(_rounded(gate.float() * 1.5, dtype))", "every value matched"),
        ("plain.py", "return (x * cos.float() + _rotate_half(x)", "return (x.detach() * cos.float() + _rotate_half(x)", "gradients of the ops"),
        ("kernels/gated_activation.py", "ctx.save_for_backward(gate, up)", "ctx.save_for_backward(up, gate)", "operators"),
        ("apply.py", "del module.__dict__[\"forward\"]\n        self._changed", "pass\n        self._changed", "revert"),
    ],
)
def test_a_wrong_patch_is_noticed(copied, capsys, name, old, new, check):
    status, checks, _ = verify(copied(name, old, new), capsys)
    assert status == 1 and checks[check]["ok"] is False


def test_edited_files_are_named_and_judged_as_they_stand(copied, capsys):
    target = copied("plain.py", "_normed", "_unit_rms")
    assert main(["verify", str(target), "--model", "qwen3-tiny", *ENGINE, "--parts", "rope"]) == 0
    assert "edited since it was generated: plain.py" in " ".join(capsys.readouterr().out.split())


def test_another_model_is_status_2(folder, capsys):
    assert main(["verify", str(folder), "--model", "llama-tiny", *ENGINE]) == 2
    assert "another model or other weights" in capsys.readouterr().err


def test_a_damaged_manifest_is_status_2(copied, capsys):
    target = copied("manifest.json", '"hidden_size": 256', '"hidden_size": 257')
    status, _, error = verify(target, capsys)
    assert status == 2 and "manifest.json was changed" in error and len(error.splitlines()) == 1


def test_an_unknown_part_is_status_2(folder, capsys):
    status, _, error = verify(folder, capsys, "--parts", "attention")
    assert status == 2 and "this patch has no attention" in error
