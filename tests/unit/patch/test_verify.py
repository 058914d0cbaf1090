"""The proof: what it says of a good patch, and that it notices a bad one."""

import json
import shutil

import pytest
from patch_models import CAPTURES

from graphdiff.cli.main import main
from graphdiff.store import read_capture
from graphdiff.verify.inputs import NUMBERS
from graphdiff.verify.kernels import check_bits_of_kernels
from graphdiff.verify.model import Verification, as_text

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
    bits = checks["final hidden states"]  # what is not applied is not proved
    assert bits["ok"] is None and "not claimed" in bits["detail"]
    numbers = bits["numbers"]
    assert bits["outcome"] == ("no change" if numbers["differing_before"] == numbers["differing_after"] else "")


def test_one_part_is_said_to_change_nothing_and_not_to_be_proved(folder, capsys):
    assert main(["verify", str(folder), "--model", "qwen3-tiny", *ENGINE, "--parts", "rope"]) == 0
    out = capsys.readouterr().out
    line = next(line for line in out.splitlines() if "final hidden states" in line)
    assert line.startswith("no change") and "1 prove nothing here" in out and "all checks passed" not in out
    assert "27 moved values before, 11 after, counted in every layer; the parts align 16 (8 a layer in 2 layers)" in " ".join(out.split())


def test_values_that_stay_are_named(folder, copied, capsys):
    target = copied("plain.py", "x = weight.float() * x", "x = _rounded(weight.float() * x, dtype)")
    status, checks, _ = verify(target, capsys, "--parts", "rope")
    detail = checks["rounding places"]["detail"]
    assert status == 1 and "the parts align 16 (8 a layer in 2 layers), and 12 went; left: " in detail
    assert "xhat * weight in model.layers.*.self_attn" in detail and "silu" not in detail
    assert "order of sums explains" in checks["operators"]["detail"] and "more than float32" in checks["operators"]["detail"]
    assert checks["operators"]["ok"] is False


def test_a_trainers_capture_is_refused_in_one_line(folder, capsys):
    assert main(["verify", str(folder), "--model", "qwen3-tiny", "--inference", str(CAPTURES[1])]) == 2
    error = capsys.readouterr().err
    assert "not of the engine" in error and len(error.splitlines()) == 1


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


def rows_of(folder):
    """(the check, its rows) of a patch's kernels against the fixture's engine program."""
    manifest = json.loads((folder / "manifest.json").read_text())
    check, rows = check_bits_of_kernels(folder, manifest, read_capture(CAPTURES[0]))
    assert [r.kernel for r in rows] == manifest["kernels"]["operators"]
    return check, {r.kernel: r for r in rows}


def test_every_kernel_has_the_engines_bits(folder):
    check, rows = rows_of(folder)
    assert check.ok and len(rows) == 6
    assert all(r.equal and r.elements and set(r.differing) == set(NUMBERS) and not any(r.differing.values()) and r.mirrors for r in rows.values())


def test_kernels_that_round_elsewhere_or_fail_are_named(copied):
    target = copied("kernels/gated_activation.py", "lane_512, t4, ok)", "lane_512, tl.nothing(t4), ok)")
    file = target / "kernels/residual_rms_norm.py"
    file.write_text(file.read_text().replace("h = attn_row + residual_row", "h = (attn_row + residual_row).to(tl.bfloat16).to(tl.float32)"))
    check, rows = rows_of(target)
    assert check.ok is False and "swiglu" in check.detail
    assert rows["swiglu"].equal is False and "it fails" in rows["swiglu"].detail and "nothing" in rows["swiglu"].detail
    assert rows["qk_norm_rope"].equal
    wrong = rows["input_layernorm"]
    assert wrong.equal is False and wrong.differing["random"] and f"random: {wrong.differing['random']:,}" in wrong.detail


def test_without_triton_kernels_are_not_compared(folder, monkeypatch):
    monkeypatch.setattr("graphdiff.verify.kernels.importlib.util.find_spec", lambda name: None)
    check, rows = rows_of(folder)
    assert check.ok is None and check.detail == "not compared: triton is not installed"
    assert all(r.equal is None and r.detail == "triton is not installed" for r in rows.values())
    text = as_text(Verification(graphdiff="0", package="p", model="m", parts=["rope"], checks=[check], kernels=list(rows.values())))
    assert text.count("not compared") == 7


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
